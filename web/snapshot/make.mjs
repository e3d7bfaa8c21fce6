// node make.mjs PYODIDE STDLIB CORE OUT: starts Python, imports the core and writes the interpreter's memory.
// The site's own archives must be given, as the memory contains their tables of contents.

import { createRequire } from "node:module";
import { readFileSync, writeFileSync } from "node:fs";
import { pathToFileURL } from "node:url";

const [pyodideFolder, stdlib, core, out] = process.argv.slice(2);
const CORE = "/camelid"; // web/python.js unpacks the core to the same place
const PAGE_BYTES = 65536; // of WebAssembly's memory

makeReproducible();
const { loadPyodide } = await import(pathToFileURL(`${pyodideFolder}/pyodide.mjs`).href);
const python = await loadPyodide({
  indexURL: `${pyodideFolder}/`,
  stdLibURL: stdlib,
  env: { PYTHONHASHSEED: "0" },
  _sysExecutable: "./this.program", // as in a browser, instead of this file's path
  _makeSnapshot: true,
});
python.FS.writeFile("/core.zip", new Uint8Array(readFileSync(core)));
try {
  python.runPython(`
import gc, sys, zipfile
from pathlib import Path
zipfile.ZipFile("/core.zip").extractall("${CORE}")
sys.path.insert(0, "${CORE}")
from camelid.page import snapshot
snapshot.freeze(Path("${CORE}"))
gc.collect()
`);
} catch (error) {
  console.error(error.message); // Python's traceback; Node.js alone would print a line of Pyodide's source
  process.exit(3); // build.py's WRONG_PYTHON
}
writeFileSync(out, trimmed(python.makeMemorySnapshot()));

/** The snapshot without its memory's last pages, if they are zero. */
function trimmed(snapshot) {
  const end = snapshot.findLastIndex((byte) => byte) + 1;
  const memoryAt = new Uint32Array(snapshot.buffer, 0, 2)[1];
  return snapshot.subarray(0, memoryAt + PAGE_BYTES * Math.ceil((end - memoryAt) / PAGE_BYTES));
}

/** Fixes time and random numbers, so that equal archives give equal bytes. */
function makeReproducible() {
  Date.now = () => Date.UTC(1980, 0, 1);
  performance.now = () => 0;
  createRequire(import.meta.url)("node:crypto").randomFillSync = (bytes) => bytes.fill(1);
}
