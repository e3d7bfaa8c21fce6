// The one-file page's worker, bundled to one script with Pyodide (make.mjs).

import createPyodideModule from "../pyodide/pyodide.asm.mjs";
import { info as pyodide } from "../pyodide/pyodide-lock.json";

if (self.name === "camelid-thread") import("../wasm_thread.js"); // in this file, so it listens in time
else begin();

function begin() {
  const { urls } = globalThis.camelidFiles;
  urls["wasm_thread.js"] = self.location.href; // this script is the compute worker, too
  Object.assign(globalThis.camelidFiles, { pyodide, createPyodideModule });
  import("../worker.js");
}
