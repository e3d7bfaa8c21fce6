// A Node worker with a page worker's interface; host.mjs starts it for `new Worker(url)`.

import { parentPort, workerData } from "node:worker_threads";

globalThis.self = globalThis;
self.postMessage = (data) => parentPort.postMessage(data);
await import(workerData.url);
parentPort.on("message", (data) => self.onmessage({ data }));
