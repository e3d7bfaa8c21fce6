// Speed of products with matrices in WASM, type by type: `node tests/perf/wasm_matrix.mjs [q4_k ...]
// [--variant simd|relaxed] [--threads n] [--cols n]`; reads the modules in native/camelid_native/lib.
//
// Like tests/perf/cpu_matrix.py: decode is one row by a matrix larger than the caches, in GB/s of
// panels; prefill 512 rows, in GOPS (two operations a weight and row). Best of several runs. Native figure:
// `python -m tests.perf.cpu_matrix --variant avx2`.

import { parseArgs } from "node:util";

import { openKernels } from "../native/wasm_kernels.mjs";

const TYPES = {
  ...{ q4_0: 2, q4_1: 3, q5_0: 6, q5_1: 7, q8_0: 8, q2_k: 10, q4_k: 12, q5_k: 13, q6_k: 14, iq4_nl: 20 },
  ...{ f16: 1, f32: 0 },
};
const DECODE_BYTES = 96 << 20; // of panels: beyond the third-level cache
const PREFILL_ROWS = 512, PREFILL_OUT = 2048;
const CALM = 0x2c; // every byte of the panels: small scales, no infinities
const REPEATS = 9;

function bestSeconds(kernels, linear, rows) {
  const program = kernels.program([linear], rows);
  const seconds = Array.from({ length: REPEATS }, () => {
    const start = performance.now();
    kernels.submit(program);
    kernels.c.cam_wait(kernels.pool, 0);
    return (performance.now() - start) / 1000;
  });
  return Math.min(...seconds);
}

function measure(kernels, type, cols) {
  const decodeOut = Math.floor(DECODE_BYTES / kernels.panelBytes(type, 16, cols)) * 16;
  const bytes = kernels.panelBytes(type, decodeOut, cols);
  const place = {
    x: kernels.take(4 * PREFILL_ROWS * cols),
    y: kernels.take(4 * Math.max(decodeOut, PREFILL_ROWS * PREFILL_OUT)),
    panels: kernels.take(bytes),
  };
  kernels.numbers(Float32Array, place.x, PREFILL_ROWS * cols).forEach((_, i, x) => { x[i] = Math.sin(i); });
  kernels.numbers(Uint8Array, place.panels, bytes).fill(CALM);
  const seconds = (rows, nOut) => bestSeconds(kernels, { ...place, type, cols, nOut }, rows);
  const operations = 2 * PREFILL_ROWS * PREFILL_OUT * cols;
  const prefill = operations / seconds(PREFILL_ROWS, PREFILL_OUT) / 1e9;
  return { decode: bytes / seconds(1, decodeOut) / 1e9, prefill };
}

const several = (...values) => ({ type: "string", multiple: true, default: values });
const { values, positionals } = parseArgs({
  options: {
    variant: several("simd", "relaxed"),
    threads: several("1", "2"),
    cols: { type: "string", default: "2048" },
  },
  allowPositionals: true,
});
console.log(`node ${process.version}, V8 ${process.versions.v8}`);
for (const variant of values.variant) {
  for (const n of values.threads.map(Number)) {
    for (const name of positionals.length ? positionals : Object.keys(TYPES)) {
      const kernels = openKernels(`wasm-${variant}`, n);
      kernels.startThreads();
      const { decode, prefill } = measure(kernels, TYPES[name], Number(values.cols));
      const [gigabytes, gops] = [decode.toFixed(1).padStart(5), prefill.toFixed(0).padStart(4)];
      const speed = `decode ${gigabytes} GB/s; prefill ${gops} GOPS`;
      console.log(`${variant.padEnd(7)} ${name.padEnd(6)} ${n} thread${n > 1 ? "s" : " "}: ${speed}`);
      await kernels.close();
    }
  }
}
