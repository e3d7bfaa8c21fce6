// node precompile.mjs PYODIDE STDLIB CORE OUT: writes both archives, with bytecode in place of sources, to
// OUT.

import { readFileSync, writeFileSync } from "node:fs";
import { basename } from "node:path";
import { pathToFileURL } from "node:url";

const [pyodideFolder, stdlib, core, out] = process.argv.slice(2);
const { loadPyodide } = await import(pathToFileURL(`${pyodideFolder}/pyodide.mjs`).href);
const python = await loadPyodide({ indexURL: `${pyodideFolder}/` });
python.FS.writeFile("/stdlib.zip", new Uint8Array(readFileSync(stdlib)));
python.FS.writeFile("/core.zip", new Uint8Array(readFileSync(core)));
try {
  python.runPython(readFileSync(new URL("inside.py", import.meta.url), "utf8"));
} catch (error) {
  console.error(error.message); // Python's traceback; Node.js alone would print a line of Pyodide's source
  process.exit(3); // build.py's WRONG_PYTHON
}
writeFileSync(`${out}/${basename(stdlib)}`, python.FS.readFile("/stdlib.out"));
writeFileSync(`${out}/${basename(core)}`, python.FS.readFile("/core.out"));
