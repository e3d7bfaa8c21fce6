// Execution of steps: on this thread, or on workers over one shared memory; one step at a time.

import { fileUrl } from "./files.js";
import { startThread } from "./client/threads.js";

const STACK_BYTES = 1 << 20; // C stack of a worker
const POLL_MS = 20; // polling interval without Atomics.waitAsync
const START_MS = 10_000; // limit for all workers, which get a compiled module

/** A worker failed or could not be started. */
export class ThreadError extends Error {}

/** Runs steps on this thread. */
export class OneThread {
  isParallel = false;
  n = 1;
  #exports;
  #pool;

  constructor({ exports }) {
    this.#exports = exports;
    this.#pool = exports.cam_start(1, 0, 0);
  }

  /** Runs a program on a step; the arguments are addresses. */
  async run(program, step, result) {
    this.#exports.cam_submit(this.#pool, 0, program, step, result);
  }

  stop() {}
}

/** Runs steps on workers. This thread submits steps and waits without blocking. */
export class ManyThreads {
  isParallel = true;
  #exports;
  #pool;
  #done; // counter of ended runs, in the kernels' memory
  #workers = [];
  #fault = null;

  constructor({ exports, memory }, pool, n) {
    [this.#exports, this.#pool, this.n] = [exports, pool, n];
    this.#done = memory.numbers(Int32Array, exports.cam_done_at(pool) >>> 0, 1);
  }

  /**
   * Starts n workers. If a worker fails or does not start in time, ends all workers and throws ThreadError.
   * @param {import("./wasm_module.js").Kernels} kernels
   * @param {number} n
   */
  static async start(kernels, n) {
    const pool = kernels.exports.cam_start(n, 0, 0);
    if (!pool) throw new ThreadError(`the module does not support ${n} threads`);
    const own = new ManyThreads(kernels, pool, n);
    try {
      const starting = Array.from({ length: n }, (_, thread) => own.#start(kernels, pool, thread));
      await within(START_MS, Promise.all(starting));
    } catch (error) {
      own.stop();
      throw new ThreadError(`compute workers do not start: ${error.message}`);
    }
    return own;
  }

  #start({ module, sharedMemory, memory }, pool, thread) {
    const worker = startThread(fileUrl("wasm_thread.js"));
    this.#workers.push(worker);
    const stack = memory.take(STACK_BYTES) + STACK_BYTES;
    return new Promise((ready, failed) => {
      const fail = (message) => {
        this.#fault ??= new ThreadError(message);
        Atomics.notify(this.#done, 0); // wakes run(), which throws the fault
        failed(this.#fault);
      };
      worker.onmessage = ({ data }) => (data.fault ? fail(data.fault) : ready());
      worker.onerror = (event) => {
        event.preventDefault(); // otherwise the error also reaches this thread and ends the page
        fail(event.message || "the browser gave no reason");
      };
      worker.postMessage({ module, memory: sharedMemory, pool, thread, stack });
    });
  }

  async run(program, step, result) {
    const before = Atomics.load(this.#done, 0);
    this.#exports.cam_submit(this.#pool, 0, program, step, result);
    while (Atomics.load(this.#done, 0) === before) {
      if (this.#fault) throw this.#fault;
      await changed(this.#done, before);
    }
  }

  /** Ends the workers; a run() in progress throws. */
  stop() {
    this.#fault ??= new Error("the backend was closed");
    Atomics.notify(this.#done, 0);
    for (const worker of this.#workers) worker.terminate();
  }
}

/** Awaits a promise with a time limit. */
async function within(ms, promise) {
  let timer;
  const late = new Promise((_, failed) => {
    timer = setTimeout(() => failed(new Error(`no reply for ${ms / 1000} s`)), ms);
  });
  try {
    return await Promise.race([promise, late]);
  } finally {
    clearTimeout(timer);
  }
}

/** Waits until a word differs from `value` or is notified. */
async function changed(word, value) {
  if (Atomics.waitAsync) return Atomics.waitAsync(word, 0, value).value;
  if (Atomics.wait(word, 0, value, POLL_MS) !== "timed-out") return null;
  return new Promise((next) => setTimeout(next)); // lets a worker's error message arrive
}
