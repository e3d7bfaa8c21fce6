// As compile_naga.py, with Dawn, whose WGSL compiler is Chrome's Tint: node compile_tint.mjs todo.json
import { existsSync, readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";

const { create, globals } = createRequire(join(process.cwd(), "package.json"))("webgpu");
Object.assign(globalThis, globals);
const KINDS = { read: "read-only-storage", write: "storage" };
const FEATURES = ["shader-f16", "subgroups", "chromium-experimental-subgroup-matrix"];

const gpu = create(["backend=vulkan", "enable-dawn-features=allow_unsafe_apis,disable_blob_cache"]);
const adapter = await gpu.requestAdapter();
if (!adapter) throw new Error("no Vulkan adapter");
const { maxBufferSize, maxStorageBufferBindingSize, maxComputeWorkgroupStorageSize } = adapter.limits;
const sizes = { maxBufferSize, maxStorageBufferBindingSize, maxComputeWorkgroupStorageSize };
const device = await adapter.requestDevice({
  requiredFeatures: FEATURES.filter((name) => adapter.features.has(name)),
  requiredLimits: { ...sizes, maxStorageBuffersPerShaderStage: 10 },
});

function nRecords() {
  const out = process.env.ISA_OUT;
  return existsSync(out) ? readFileSync(out, "utf8").split("\n").length - 1 : 0;
}

async function createOne({ wgsl, access, constants }) {
  const first = nRecords();
  const start = performance.now();
  device.pushErrorScope("validation");
  const module = device.createShaderModule({ code: wgsl });
  const middle = performance.now();
  const entries = access.map((word, binding) => ({ binding, visibility: 4, buffer: { type: KINDS[word] } }));
  const layout = device.createPipelineLayout({ bindGroupLayouts: [device.createBindGroupLayout({ entries })] });
  device.createComputePipeline({ layout, compute: { module, entryPoint: "main", constants } });
  const error = (await device.popErrorScope())?.message;
  const times = { module_ms: middle - start, pipeline_ms: performance.now() - middle };
  return { first, records: nRecords() - first, ...times, error };
}

console.log(JSON.stringify({ device: `${adapter.info.vendor} ${adapter.info.architecture}` }));
for (const entry of JSON.parse(readFileSync(process.argv[2]))) console.log(JSON.stringify(await createOne(entry)));
process.exit(0);
