// The package's worker, bundled to one file with Pyodide. It is started by browser.js, whose first message
// has the addresses of its files; and by client/threads.js as a compute worker.

import createPyodideModule from "../pyodide/pyodide.asm.mjs";
import { info as pyodide } from "../pyodide/pyodide-lock.json";

if (self.name === "camelid-thread") import("../wasm_thread.js"); // in this file, so it listens in time
else self.onmessage = begin;

const early = []; // messages that arrive before worker.js listens

async function begin({ data }) {
  if (!data.urls) return early.push(data);
  const urls = { ...data.urls, "wasm_thread.js": self.location.href }; // this file is the compute worker, too
  globalThis.camelidFiles = { ...data, urls, pyodide, createPyodideModule };
  await import("../worker.js"); // sets onmessage
  for (const message of early.splice(0)) self.onmessage({ data: message });
}
