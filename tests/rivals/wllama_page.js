// wllama with the two calls of tests/rivals/wllama.py: load a model, answer a prompt.

import { Wllama } from "./wllama/index.js";

const silent = { debug() {}, log() {}, warn() {}, error: console.error };
const wllama = new Wllama({ default: "wllama/wasm/wllama.wasm" }, { suppressNativeLog: true, logger: silent });

globalThis.rival = {
  /** Runs on the processor: wllama's WebGPU needs shader-f16, which software adapters lack. */
  async load({ model, threads, context }) {
    const blob = await (await fetch(model)).blob();
    await wllama.loadModel([blob], { n_ctx: context, n_threads: threads, n_gpu_layers: 0, n_parallel: 1 });
    return { build: Wllama.getLibllamaVersion(), threads: wllama.getNumThreads() };
  },
  /** llama.cpp's timings of one answer, without the cost of messages between threads. */
  async ask({ prompt, tokens }) {
    const how = { max_tokens: tokens, temperature: 0, ignore_eos: true, cache_prompt: false };
    const { timings } = await wllama.createCompletion({ prompt, ...how });
    return timings;
  },
};
