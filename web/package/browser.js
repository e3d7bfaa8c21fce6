// Entry of the npm package for pages: the client, with the addresses of the worker's files. Bundlers find
// each file by its `new URL("...", import.meta.url)`, copy it and put its new address here.

import { load as loadWith, startWorker } from "./client/camelid.js";

export { CamelidError, LLM, Session, Stream } from "./client/camelid.js";
export { openai } from "./client/openai.js";

// Not `new Worker(new URL(...))`: the worker is one file already, and must stay a module.
const WORKER = new URL("./worker.js", import.meta.url);
const URLS = {
  "camelid.zip": new URL("./camelid.zip", import.meta.url).href,
  "pyodide/pyodide.asm.wasm": new URL("./pyodide/pyodide.asm.wasm", import.meta.url).href,
  "pyodide/python_stdlib.zip": new URL("./pyodide/python_stdlib.zip", import.meta.url).href,
  "wasm-relaxed/camelid_cpu.wasm": new URL("./wasm-relaxed/camelid_cpu.wasm", import.meta.url).href,
  "wasm-relaxed/camelid_cpu_threads.wasm":
    new URL("./wasm-relaxed/camelid_cpu_threads.wasm", import.meta.url).href,
  "wasm-simd/camelid_cpu.wasm": new URL("./wasm-simd/camelid_cpu.wasm", import.meta.url).href,
  "wasm-simd/camelid_cpu_threads.wasm": new URL("./wasm-simd/camelid_cpu_threads.wasm", import.meta.url).href,
};

/** As `load` of client/camelid.js, with the package's worker. */
export async function load(model, { worker = WORKER, ...options } = {}) {
  const start = () => {
    const started = startWorker(worker);
    started.postMessage({ urls: URLS });
    return started;
  };
  return loadWith(model, { ...options, worker: start });
}
