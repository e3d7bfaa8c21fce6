// Imports and exports of a WASM module of the kernels, as JSON: `node wasm_describe.mjs FOLDER/FILE`.

import { Kernels, compile } from "./wasm_kernels.mjs";

const module = compile(process.argv[2]);
const imports = WebAssembly.Module.imports(module);
const shared = () => new WebAssembly.Memory({ initial: 64, maximum: 65535, shared: true });
const kernels = new Kernels(module, imports.length ? shared() : undefined);
const { c } = kernels;
const variants = Array.from({ length: c.cam_n_variants() }, (_, i) => c.cam_variant_name(i));

/** The results of a size function for 0, 1, ... */
function sizes(sizeOf) {
  const found = [];
  for (let bytes; (bytes = sizeOf(found.length)); ) found.push(bytes);
  return found;
}

/** Every float16, decoded by the kernels: float32 in base 64. */
function halves() {
  const F16 = 1, n = 65536, blocks = kernels.take(2 * n), values = kernels.take(4 * n);
  kernels.numbers(Uint16Array, blocks, n).forEach((_, i, all) => { all[i] = i; });
  if (c.cam_decode(0, F16, blocks, values, BigInt(n))) throw new Error("no codec for f16");
  return Buffer.from(kernels.memory.buffer).toString("base64", values, values + 4 * n);
}

console.log(JSON.stringify({
  imports: imports.map(({ module, name, kind }) => `${module}.${name} ${kind}`),
  exports: WebAssembly.Module.exports(module).map(({ name }) => name),
  variants: variants.map((at) => kernels.text(at)),
  runs: c.cam_runs_here(0),
  records: sizes(c.cam_record_bytes),
  ops: kernels.names(c.cam_op_name),
  words: kernels.names(c.cam_word),
  halves: halves(),
}));
