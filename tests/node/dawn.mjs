// WebGPU for Node: Dawn from npm's `webgpu`, on the Vulkan driver in VK_ICD_FILENAMES.
import { createRequire } from "node:module";

// With this extension SwiftShader zeroes workgroup memory by one instruction per word: slow to compile.
const WITHOUT = "disable-dawn-features=use_vulkan_zero_initialize_workgroup_memory_extension";

/** Makes WebGPU's classes global, as in a page. Returns the equivalent of `navigator.gpu`. */
export async function openDawn() {
  const require = createRequire(import.meta.url);
  const { create, globals } = await import(require.resolve("webgpu"));
  Object.assign(globalThis, globals);
  return create([WITHOUT]);
}
