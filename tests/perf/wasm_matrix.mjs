/* Speed of products with matrices in WASM, type by type: `node tests/perf/wasm_matrix.mjs [q4_k ...]
 * [--variant simd|relaxed] [--threads n] [--cols n]`; builds nothing, reads native/camelid_native/lib.
 *
 * As tests/perf/cpu_matrix.py does: decode is one row by a matrix larger than the caches, in GB/s of panels;
 * prefill 512 rows, in GOPS (two operations a weight and row). Best of some runs. Beside it the native figure:
 * `python -m tests.perf.cpu_matrix --variant avx2`. Relaxed SIMD wants Node 21 or newer. */
import { readFileSync } from "node:fs";
import { parseArgs } from "node:util";
import { Worker, isMainThread, workerData } from "node:worker_threads";

const TYPES = {
  q4_0: 2, q4_1: 3, q5_0: 6, q5_1: 7, q8_0: 8, q2_k: 10, q4_k: 12, q5_k: 13, q6_k: 14, iq4_nl: 20, f16: 1, f32: 0,
};
const LIB = new URL("../../native/camelid_native/lib/", import.meta.url);
const DECODE_BYTES = 96 << 20; // of panels: beyond the third-level cache
const PREFILL_ROWS = 512, PREFILL_OUT = 2048;
const CALM = 0x2c; // every byte of the panels: small scales, no infinities
const REPEATS = 9;
const FORM_PANELS = 2, OP_BYTES = 448, PROGRAM_BYTES = 80, VIEWS = 8, VIEW_BYTES = 24, WEIGHTS = 152;
const PAGE = 65536, STACK_BYTES = 1 << 20;

/* A module over one memory, and an allocator that never frees. */
class Kernels {
  constructor(module, memory) {
    const env = memory ? { memory } : {};
    this.c = new WebAssembly.Instance(module, { env }).exports;
    this.memory = memory ?? this.c.memory;
    this.end = this.c.__heap_base.value;
  }
  take(bytes) {
    const at = Math.ceil(this.end / 64) * 64;
    this.end = at + bytes;
    const missing = Math.ceil(this.end / PAGE) - this.memory.buffer.byteLength / PAGE;
    if (missing > 0) this.memory.grow(missing);
    return at;
  }
  get view() { return new DataView(this.memory.buffer); }
  text(at) {
    const bytes = new Uint8Array(this.memory.buffer);
    let end = at;
    while (bytes[end]) end++;
    return String.fromCharCode(...bytes.slice(at, end));
  }
  kind(name) {
    for (let i = 0, at; (at = this.c.cam_op_name(i)); i++) if (this.text(at) === name) return i;
    throw new Error(`the module has no op ${name}`);
  }
}

function openKernels(variant, n) {
  const name = n > 1 ? "camelid_cpu_threads.wasm" : "camelid_cpu.wasm";
  const module = new WebAssembly.Module(readFileSync(new URL(`wasm-${variant}/${name}`, LIB)));
  const memory = n > 1 ? new WebAssembly.Memory({ initial: 64, maximum: 65535, shared: true }) : null;
  const kernels = new Kernels(module, memory);
  kernels.pool = kernels.c.cam_start(n, 0);
  const workers = n === 1 ? [] : Array.from({ length: n }, (_, thread) => {
    const stack = kernels.take(STACK_BYTES) + STACK_BYTES;
    return new Worker(new URL(import.meta.url), { workerData: { module, memory, pool: kernels.pool, thread, stack } });
  });
  return { kernels, close: () => (kernels.c.cam_stop(kernels.pool), Promise.all(workers.map(ended))) };
}
const ended = (worker) => new Promise((resolve) => worker.on("exit", resolve));

function work({ module, memory, pool, thread, stack }) {
  const { c } = new Kernels(module, memory);
  c.__stack_pointer.value = stack;
  c.cam_work(pool, thread);
}

/* The records of one linear over given rows; what it computes with lies where `place` says. */
function writeProgram(kernels, place, type, rows, nOut, cols) {
  const op = kernels.take(OP_BYTES), program = kernels.take(PROGRAM_BYTES), view = kernels.view;
  const u32 = (at, ...words) => words.forEach((word, i) => view.setUint32(at + 4 * i, word, true));
  u32(op, kernels.kind("linear"));
  u32(op + VIEWS, place.y, 0, nOut, nOut);
  u32(op + VIEWS + VIEW_BYTES, place.x, 0, cols, cols);
  u32(op + WEIGHTS, place.panels, 0, 0, 0, FORM_PANELS, type, 1, nOut, cols);
  u32(program, op, 0, 1, 0);
  u32(program + 72, rows);
  return program;
}

function bestSeconds(kernels, program, n, rows) {
  const scratch = Number(kernels.c.cam_scratch_bytes(0, program, n));
  const scratchAt = kernels.take(scratch), step = kernels.take(64), view = kernels.view;
  view.setUint32(program + 16, scratchAt, true), view.setUint32(program + 24, scratch, true);
  view.setUint32(step, rows, true);
  let best = Infinity;
  for (let i = 0; i < REPEATS; i++) {
    const start = performance.now();
    kernels.c.cam_submit(kernels.pool, 0, program, step, 0);
    kernels.c.cam_wait(kernels.pool);
    best = Math.min(best, (performance.now() - start) / 1000);
  }
  return best;
}

function measure(kernels, n, type, cols) {
  const bytes = (nOut) => Number(kernels.c.cam_panel_bytes(0, type, nOut, cols));
  const nOut = Math.floor(DECODE_BYTES / bytes(16)) * 16;
  const place = {
    x: kernels.take(4 * PREFILL_ROWS * cols),
    y: kernels.take(4 * Math.max(nOut, PREFILL_ROWS * PREFILL_OUT)),
    panels: kernels.take(bytes(nOut)),
  };
  new Float32Array(kernels.memory.buffer, place.x, PREFILL_ROWS * cols).forEach((_, i, x) => { x[i] = Math.sin(i); });
  new Uint8Array(kernels.memory.buffer, place.panels, bytes(nOut)).fill(CALM);
  const seconds = (rows, out) => bestSeconds(kernels, writeProgram(kernels, place, type, rows, out, cols), n, rows);
  const prefill = (2 * PREFILL_ROWS * PREFILL_OUT * cols) / seconds(PREFILL_ROWS, PREFILL_OUT);
  return { decode: bytes(nOut) / seconds(1, nOut) / 1e9, prefill: prefill / 1e9 };
}

async function main() {
  const options = { variant: { type: "string", multiple: true, default: ["simd", "relaxed"] },
                    threads: { type: "string", multiple: true, default: ["1", "2"] },
                    cols: { type: "string", default: "2048" } };
  const { values, positionals } = parseArgs({ options, allowPositionals: true });
  console.log(`node ${process.version}, V8 ${process.versions.v8}`);
  for (const variant of values.variant)
    for (const n of values.threads.map(Number))
      for (const type of positionals.length ? positionals : Object.keys(TYPES)) {
        const { kernels, close } = openKernels(variant, n);
        const { decode, prefill } = measure(kernels, n, TYPES[type], Number(values.cols));
        const speed = `decode ${decode.toFixed(1).padStart(5)} GB/s; prefill ${prefill.toFixed(0).padStart(4)} GOPS`;
        console.log(`${variant.padEnd(7)} ${type.padEnd(6)} ${n} threads: ${speed}`);
        await close();
      }
}

if (isMainThread) await main();
else work(workerData);
