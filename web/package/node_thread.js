// Globals of a page's worker that a thread of Node.js lacks, before worker.js runs in it: messages, an address,
// the number of processors, workers, and requests for files.

import { open } from "node:fs/promises";
import { availableParallelism } from "node:os";
import { fileURLToPath } from "node:url";
import { parentPort, workerData } from "node:worker_threads";

import { NodeWorker } from "./node_worker.js";

const HERE = new URL("./", import.meta.url);
const FILES = [
  "camelid.zip",
  "wasm-relaxed/camelid_cpu.wasm", "wasm-relaxed/camelid_cpu_threads.wasm",
  "wasm-simd/camelid_cpu.wasm", "wasm-simd/camelid_cpu_threads.wasm",
];
const urls = Object.fromEntries(FILES.map((name) => [name, new URL(name, HERE).href]));
// Pyodide takes a path in Node.js, not an address.
urls["pyodide/python_stdlib.zip"] = fileURLToPath(new URL("pyodide/python_stdlib.zip", HERE));

const request = globalThis.fetch;
Object.assign(globalThis, {
  self: globalThis,
  name: workerData.name,
  location: { href: new URL("worker.js", HERE).href },
  postMessage: (data) => parentPort.postMessage(data),
  fetch: (url, how) => (`${url}`.startsWith("file:") ? readPart(new URL(url), how) : request(url, how)),
  Worker: class extends NodeWorker {
    constructor(_, { name }) {
      super(name);
    }
  },
});
globalThis.navigator ??= { // Node.js has one since version 21
  hardwareConcurrency: availableParallelism(),
  userAgent: `Node.js/${process.versions.node}`,
};

/** Answers a request for a file, or for its range of bytes, as a server would. */
async function readPart(url, { headers: { Range: range } = {} } = {}) {
  let file;
  try {
    file = await open(url);
  } catch (error) {
    if (error.code === "ENOENT") return new Response(null, { status: 404, statusText: "Not Found" });
    throw error;
  }
  try {
    const { size } = await file.stat();
    const [start, last] = range ? /(\d+)-(\d+)/.exec(range).slice(1).map(Number) : [0, size - 1];
    const bytes = new Uint8Array(Math.min(last + 1, size) - start);
    await file.read(bytes, 0, bytes.length, start);
    const place = `bytes ${start}-${start + bytes.length - 1}/${size}`;
    return new Response(bytes, range ? { status: 206, headers: { "content-range": place } } : {});
  } finally {
    await file.close();
  }
}

const early = []; // messages that arrive before worker.js listens
parentPort.on("message", (data) => (self.onmessage ? self.onmessage({ data }) : early.push(data)));
await import("./worker.js");
if (workerData.name === "camelid") {
  self.onmessage({ data: { urls, indexURL: fileURLToPath(new URL("pyodide/", HERE)) } });
}
for (const data of early.splice(0)) self.onmessage({ data });
