// A worker of Node's that looks like a page's: what host.mjs starts for `new Worker(url)`.

import { parentPort, workerData } from "node:worker_threads";

globalThis.self = globalThis;
self.postMessage = (data) => parentPort.postMessage(data);
await import(workerData.url);
parentPort.on("message", (data) => self.onmessage({ data }));
