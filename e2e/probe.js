// Counts WebGPU calls and pauses answers: wraps the browser's prototypes before the code under test runs.
// `created` excludes command encoders and passes, which WebGPU requires for every step.

globalThis.devices = [];
globalThis.probe = {
  created: 0, submits: 0, maps: 0, mapsOpen: 0, mapsOpenAtMost: 0, bytesMapped: 0,
};

const CREATORS = [
  "createBuffer",
  "createBindGroup",
  "createBindGroupLayout",
  "createPipelineLayout",
  "createShaderModule",
  "createComputePipeline",
  "createComputePipelineAsync",
  "createTexture",
  "createSampler",
  "createQuerySet",
];

function wrap(prototype, name, before) {
  const original = prototype[name];
  prototype[name] = function (...args) {
    before.apply(this, args);
    return original.apply(this, args);
  };
}

if (globalThis.GPUDevice) {
  const { probe } = globalThis;
  for (const name of CREATORS) wrap(GPUDevice.prototype, name, () => (probe.created += 1));
  wrap(GPUQueue.prototype, "submit", () => (probe.submits += 1));

  // After holdMaps(n), only n more buffers are mapped before releaseMaps(): an answer pauses, however fast.
  let [nFree, held] = [Infinity, null];
  globalThis.holdMaps = (n) => ([nFree, held] = [n, Promise.withResolvers()]);
  globalThis.releaseMaps = () => {
    nFree = Infinity;
    held.resolve();
  };

  const map = GPUBuffer.prototype.mapAsync;
  GPUBuffer.prototype.mapAsync = function (mode, offset = 0, size = this.size - offset) {
    probe.maps += 1;
    probe.mapsOpen += 1;
    probe.mapsOpenAtMost = Math.max(probe.mapsOpenAtMost, probe.mapsOpen);
    probe.bytesMapped += size;
    nFree -= 1;
    const mapped = map.call(this, mode, offset, size).finally(() => (probe.mapsOpen -= 1));
    return nFree < 0 ? mapped.then(() => held.promise) : mapped;
  };

  const request = GPUAdapter.prototype.requestDevice;
  GPUAdapter.prototype.requestDevice = async function (...args) {
    const device = await request.apply(this, args);
    globalThis.devices.push(device);
    return device;
  };
}

if (globalThis.WorkerGlobalScope) {
  globalThis.violations = [];
  addEventListener("securitypolicyviolation", (event) => globalThis.violations.push(event.violatedDirective));
}
