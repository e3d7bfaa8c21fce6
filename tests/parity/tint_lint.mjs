// Compiles every pipeline of a JSON file with Tint, on Dawn's null backend: no GPU, default limits but for the adapter's
// number of bindings. Of a pipeline with more bindings than that, only the module is compiled.
// usage: node tint_lint.mjs pipelines.json; prints one JSON line {checked, errors: [...]}.
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";

const require = createRequire(`${process.cwd()}/package.json`);
const { create, globals } = await import(require.resolve("webgpu"));
Object.assign(globalThis, globals);
const gpu = create(["backend=null"]);
const adapter = await gpu.requestAdapter();
const { maxStorageBuffersPerShaderStage } = adapter.limits;
const device = await adapter.requestDevice({ requiredLimits: { maxStorageBuffersPerShaderStage } });

async function lint({ name, wgsl, access, constants }) {
  const module = device.createShaderModule({ code: wgsl });
  const { messages } = await module.getCompilationInfo();
  const bad = messages.filter((m) => m.type !== "info").map((m) => `${name}:${m.lineNum}: ${m.message}`);
  if (bad.length || access.length > device.limits.maxStorageBuffersPerShaderStage) return bad;
  const entries = access.map((word, binding) => ({
    binding,
    visibility: GPUShaderStage.COMPUTE,
    buffer: { type: word === "read" ? "read-only-storage" : "storage" },
  }));
  const layout = device.createPipelineLayout({ bindGroupLayouts: [device.createBindGroupLayout({ entries })] });
  try {
    await device.createComputePipelineAsync({ layout, compute: { module, entryPoint: "main", constants } });
    return [];
  } catch (error) {
    return [`${name}: ${error.message}`];
  }
}

const pipelines = JSON.parse(readFileSync(process.argv[2], "utf8"));
const errors = [];
for (const pipeline of pipelines) errors.push(...(await lint(pipeline)));
console.log(JSON.stringify({ checked: pipelines.length, errors }));
process.exit(0);
