// Inside the frame of rival.js: wllama on the processor, with two calls, load and ask.

const VENDOR = new URL("../vendor/wllama/", import.meta.url);
let wllama = null;

// Listens before wllama is fetched: the first message comes with the frame's load event.
addEventListener("message", ({ data, origin, ports: [port] }) => {
  if (origin !== location.origin || data !== "connect") return;
  port.onmessage = async ({ data: { method, ...given } }) => {
    try {
      const found = await import(new URL("wllama.js", VENDOR)).catch(() => null);
      if (!found) port.postMessage({ isAbsent: true });
      else port.postMessage({ value: await METHODS[method](found, given) });
    } catch (error) {
      port.postMessage({ error: `wllama: ${error.message ?? error}` });
    }
  };
  port.postMessage({ value: "ready" });
});

const METHODS = {
  /** Runs on the processor: wllama's WebGPU needs shader-f16. */
  async load({ Wllama }, { files, context }) {
    const paths = { default: new URL("wllama.wasm", VENDOR).href };
    const { logger, failed } = watchErrors();
    wllama = new Wllama(paths, { suppressNativeLog: true, logger });
    const n_threads = crossOriginIsolated ? navigator.hardwareConcurrency : 1;
    const how = { n_ctx: context, n_threads, n_gpu_layers: 0, n_parallel: 1 };
    await Promise.race([wllama.loadModel(files, how), failed]);
    const n = wllama.getNumThreads();
    return { name: `wllama (llama.cpp ${Wllama.getLibllamaVersion()}, cpu, ${n} threads)` };
  },
  /** llama.cpp's own timings of one answer, without the cost of messages between threads. */
  async ask(_, { prompt, tokens }) {
    const how = { max_tokens: tokens, temperature: 0, ignore_eos: true, cache_prompt: false };
    const { timings } = await wllama.createCompletion({ prompt, ...how });
    return {
      n: timings.predicted_n,
      prompt: timings.prompt_n,
      prefill: timings.prompt_per_second,
      decode: timings.predicted_per_second,
    };
  },
};

/** A logger, and a promise that its first error rejects: wllama only logs an error of its worker, and waits. */
function watchErrors() {
  const logger = { debug() {}, log() {}, warn() {} };
  const failed = new Promise((_, reject) => {
    logger.error = (...words) => {
      console.error(...words);
      reject(words[0] instanceof Error ? words[0] : new Error(words[0]?.message ?? words.join(" ")));
    };
  });
  failed.catch(() => {}); // an error after loading
  return { logger, failed };
}
