// WebGPU for Node: Dawn, as npm's `webgpu` has it, on the Vulkan driver that VK_ICD_FILENAMES names.
import { createRequire } from "node:module";

// By it SwiftShader zeroes a workgroup's memory with an instruction a number, which takes long to compile.
const WITHOUT = "disable-dawn-features=use_vulkan_zero_initialize_workgroup_memory_extension";

/** Makes WebGPU's classes global, as in a page, and answers with what a page calls `navigator.gpu`. */
export async function openDawn() {
  const require = createRequire(import.meta.url);
  const { create, globals } = await import(require.resolve("webgpu"));
  Object.assign(globalThis, globals);
  return create([WITHOUT]);
}
