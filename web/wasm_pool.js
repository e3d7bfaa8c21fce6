// Who computes: this thread, or workers over one shared memory. Either runs one step at a time.

const STACK_BYTES = 1 << 20; // of a worker's C
const POLL_MS = 20; // where a wait cannot be awaited
const START_MS = 10_000; // for all workers; they are given a module that is compiled

/** A worker that failed, or could not be started. */
export class ThreadError extends Error {}

/** This thread runs each step when it is asked to. */
export class OneThread {
  isParallel = false;
  n = 1;
  #exports;
  #pool;

  constructor({ exports }) {
    this.#exports = exports;
    this.#pool = exports.cam_start(1, 0, 0);
  }

  /** Runs a program on a step's words; all three are addresses. */
  async run(program, step, result) {
    this.#exports.cam_submit(this.#pool, 0, program, step, result);
  }

  stop() {}
}

/** Workers run the steps. This thread submits and waits without blocking. */
export class ManyThreads {
  isParallel = true;
  #exports;
  #pool;
  #done; // the word that counts the runs that have ended
  #workers = [];
  #fault = null;

  constructor({ exports, memory }, pool, n) {
    [this.#exports, this.#pool, this.n] = [exports, pool, n];
    this.#done = memory.numbers(Int32Array, exports.cam_done_at(pool) >>> 0, 1);
  }

  /**
   * ThreadError if one of the workers does not start, or not soon; then none is left.
   * @param {import("./wasm_module.js").Kernels} kernels
   * @param {number} n
   */
  static async start(kernels, n) {
    const pool = kernels.exports.cam_start(n, 0, 0);
    if (!pool) throw new ThreadError(`the module has no place for ${n} threads`);
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
    const worker = new Worker(new URL("./wasm_thread.js", import.meta.url), { type: "module" });
    this.#workers.push(worker);
    const stack = memory.take(STACK_BYTES) + STACK_BYTES;
    return new Promise((ready, failed) => {
      const fail = (message) => {
        this.#fault ??= new ThreadError(message);
        Atomics.notify(this.#done, 0); // who waits looks again
        failed(this.#fault);
      };
      worker.onmessage = ({ data }) => (data.fault ? fail(data.fault) : ready());
      worker.onerror = (event) => {
        event.preventDefault(); // else it is an error of this thread, too, and ends the page
        fail(event.message || "the browser does not say why");
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

  /** Who waits for a run is told. */
  stop() {
    this.#fault ??= new Error("the backend was closed");
    Atomics.notify(this.#done, 0);
    for (const worker of this.#workers) worker.terminate();
  }
}

/** What a promise gives; an error if that takes longer. */
async function within(ms, promise) {
  let timer;
  const late = new Promise((_, failed) => {
    timer = setTimeout(() => failed(new Error(`no word of them for ${ms / 1000} s`)), ms);
  });
  try {
    return await Promise.race([promise, late]);
  } finally {
    clearTimeout(timer);
  }
}

/** Waits until a word is no longer `value`, or somebody notifies. */
async function changed(word, value) {
  if (Atomics.waitAsync) return Atomics.waitAsync(word, 0, value).value;
  if (Atomics.wait(word, 0, value, POLL_MS) !== "timed-out") return null;
  return new Promise((next) => setTimeout(next)); // so that a worker's fault can arrive
}
