// Opens the page's executor with failing workers: `node wasm_start.mjs HOW`. Prints as JSON the executor's
// answer, its answer for one thread, the workers' fate, and the number of errors that reached the page.
// test_wasm_modules.py checks it.

import { readFile } from "node:fs/promises";

import { WasmExecutor } from "../../web/wasm_executor.js";

const LIB = new URL("../../native/camelid_native/lib/", import.meta.url);
const VARIANT = "wasm", THREADS = 2;
const told = { begun: 0, ended: 0, waitedMs: 0, timers: 0, errors: 0 };

/** Each worker's reaction to its first message. */
const HOW = {
  refused: () => {},
  faulty: (worker) => worker.onmessage({ data: { fault: "LinkError: no memory" } }),
  missing: (worker) => worker.onerror(failure("")),
  silent: () => {},
  half: (worker) => worker.number === 0 && worker.onmessage({ data: { fault: "" } }),
  broken: (worker) => worker.onerror(failure("SyntaxError: no modules")),
};
/** An error event; it reaches the page unless it is prevented. */
function failure(message) {
  told.errors += 1;
  return { message, preventDefault: () => (told.errors -= 1) };
}

const how = process.argv[2];

globalThis.Worker = class {
  constructor() {
    if (how === "refused") throw new Error("forbidden by the page's policy");
    this.number = told.begun++;
  }

  postMessage() {
    queueMicrotask(() => HOW[how](this));
  }

  terminate() {
    told.ended += 1;
  }
};
const { setTimeout: later, clearTimeout: never } = globalThis;
globalThis.setTimeout = (work, ms) => {
  told.waitedMs = ms;
  told.timers += 1;
  return later(work);
};
globalThis.clearTimeout = (timer) => {
  told.timers -= 1;
  never(timer);
};

const executor = new WasmExecutor((path) => readFile(new URL(path, LIB)));
const open = async (threads) => {
  const { build, variant, threads: n, shared, why } = await executor.open({ variant: VARIANT, threads });
  return { build, variant, threads: n, shared, why };
};
const several = await open(THREADS), one = await open(1);
console.log(JSON.stringify({ several, one, ...told }));
