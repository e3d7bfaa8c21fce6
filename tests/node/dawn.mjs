// WebGPU for Node: Dawn, as npm's `webgpu` has it, on the Vulkan driver that VK_ICD_FILENAMES names.
import { createRequire } from "node:module";

/** Makes WebGPU's classes global, as in a page, and answers with what a page calls `navigator.gpu`. */
export async function openDawn() {
  const require = createRequire(import.meta.url);
  const { create, globals } = await import(require.resolve("webgpu"));
  Object.assign(globalThis, globals);
  return create([]);
}
