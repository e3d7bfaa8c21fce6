// A page's Worker on node:worker_threads. The threads run node_thread.js, which runs worker.js.

import { Worker } from "node:worker_threads";

/** The part of a page's Worker that the client and the compute threads use. */
export class NodeWorker {
  #worker;

  /** @param {string} name "camelid" or "camelid-thread", as of a page's worker */
  constructor(name) {
    this.#worker = new Worker(new URL("./node_thread.js", import.meta.url), { workerData: { name } });
    this.#worker.on("message", (data) => this.onmessage?.({ data }));
    this.#worker.on("error", ({ message }) => this.onerror?.({ message, preventDefault() {} }));
  }

  postMessage(data) {
    this.#worker.postMessage(data);
  }

  terminate() {
    this.#worker.terminate();
  }
}
