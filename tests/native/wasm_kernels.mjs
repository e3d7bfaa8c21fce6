// The WASM modules of the kernels without the page's executor: a module in a memory, its threads, and
// programs of matrix products. For tests and measurements, in Node.

import { readFileSync } from "node:fs";
import { setFlagsFromString } from "node:v8";
import { Worker, isMainThread, workerData } from "node:worker_threads";

const LIB = new URL("../../native/camelid_native/lib/", import.meta.url);
const V8 = parseFloat(process.versions.v8);
const RELAXED_SINCE = 11.4; // earlier: hidden, and Liftoff's dot product is wrong
const OLD_FLAGS = ["--experimental-wasm-relaxed-simd", "--no-liftoff"];
const FORM_PANELS = 2;
// From abi.h: sizes of records; offsets of an op's views and weights, and of a program's scratch and rows.
const OP_BYTES = 496, PROGRAM_BYTES = 80, VIEWS = 8, VIEW_BYTES = 24, WEIGHTS = 200, SCRATCH = 16, ROWS = 72;
const PAGE = 65536, STACK_BYTES = 1 << 20, STEP_BYTES = 64;

if (V8 < RELAXED_SINCE) OLD_FLAGS.forEach((flag) => setFlagsFromString(flag));

/** @param {string} path below lib/: "wasm-simd/camelid_cpu.wasm" */
export const compile = (path) => new WebAssembly.Module(readFileSync(new URL(path, LIB)));

/** A module over one memory, and an allocator that never frees. */
export class Kernels {
  constructor(module, memory) {
    this.c = new WebAssembly.Instance(module, memory ? { env: { memory } } : {}).exports;
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

  numbers(type, at, n) {
    return new type(this.memory.buffer, at, n);
  }

  text(at) {
    const bytes = Buffer.from(this.memory.buffer);
    return bytes.toString("latin1", at, bytes.indexOf(0, at));
  }

  /** The results of a name function for 0, 1, ... */
  names(nameOf) {
    const found = [];
    for (let at; (at = nameOf(found.length)); ) found.push(this.text(at));
    return found;
  }

  /** Bytes of a matrix in panels. */
  panelBytes(type, rows, cols) {
    return Number(this.c.cam_panel_bytes(0, type, rows, cols));
  }

  /** A program of linears, each with its buffers and sizes. */
  program(linears, rows) {
    const ops = this.take(OP_BYTES * linears.length), program = this.take(PROGRAM_BYTES);
    const put = (at, ...words) => this.numbers(Uint32Array, at, words.length).set(words);
    linears.forEach(({ x, y, panels, type, nOut, cols }, i) => {
      const op = ops + OP_BYTES * i;
      put(op, this.names(this.c.cam_op_name).indexOf("linear"));
      put(op + VIEWS, y, 0, nOut, nOut);
      put(op + VIEWS + VIEW_BYTES, x, 0, cols, cols);
      put(op + WEIGHTS, panels, 0, 0, 0, FORM_PANELS, type, 1, nOut, cols);
    });
    put(program, ops, 0, linears.length, 0);
    put(program + ROWS, rows);
    const bytes = Number(this.c.cam_scratch_bytes(0, program, this.nThreads));
    put(program + SCRATCH, this.take(bytes), 0, bytes, 0);
    return { program, step: this.take(STEP_BYTES), rows };
  }

  submit({ program, step, rows }) {
    this.numbers(Uint32Array, step, 1)[0] = rows;
    return this.c.cam_submit(this.pool, 0, program, step, 0);
  }

  /** Starts the threads; several threads need the module with shared memory. */
  startThreads() {
    const { module, memory, pool } = this;
    this.workers = Array.from({ length: this.nThreads === 1 ? 0 : this.nThreads }, (_, thread) => {
      const stack = this.take(STACK_BYTES) + STACK_BYTES;
      return new Worker(new URL(import.meta.url), { workerData: { module, memory, pool, thread, stack } });
    });
    this.ends = this.workers.map((worker) => new Promise((resolve) => worker.on("exit", resolve)));
  }

  /** Stops the threads and waits for their exit. */
  async close() {
    this.c.cam_stop(this.pool);
    await Promise.all(this.ends);
  }
}

/** The kernels of a folder of lib/, with a pool of n threads, not started. */
export function openKernels(folder, n) {
  const module = compile(`${folder}/camelid_cpu${n > 1 ? "_threads" : ""}.wasm`);
  const memory = n > 1 ? new WebAssembly.Memory({ initial: 64, maximum: 65535, shared: true }) : undefined;
  const kernels = new Kernels(module, memory), pool = kernels.c.cam_start(n, 0, 0);
  return Object.assign(kernels, { module, nThreads: n, pool, workers: [], ends: [] });
}

function work({ module, memory, pool, thread, stack }) {
  const { c } = new Kernels(module, memory);
  c.__stack_pointer.value = stack;
  c.cam_work(pool, thread);
}

if (!isMainThread) work(workerData);
