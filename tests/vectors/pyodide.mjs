// Calls a function of a Python file inside Pyodide: node pyodide.mjs SITE FILE FUNCTION DATA
// SITE holds the page's own archives, so that the page's code runs. FUNCTION receives DATA's path and
// returns JSON text, which is printed; {"error"} after a failure.
import { readFileSync } from "node:fs";
import { loadPyodide } from "../../node_modules/pyodide/pyodide.mjs";

const [site, file, name, data] = process.argv.slice(2);
const bytes = (path) => new Uint8Array(readFileSync(path));  // Pyodide does not accept Node's Buffer
const print = (text) => process.stdout.write(`${text}\n`);
try {
  const stderr = (line) => process.stderr.write(`${line}\n`);
  const stdLibURL = `${site}/pyodide/python_stdlib.zip`;
  const pyodide = await loadPyodide({ stdLibURL, stdout: () => {}, stderr });
  pyodide.unpackArchive(bytes(`${site}/camelid.zip`), "zip", { extractDir: "/camelid" });
  pyodide.FS.writeFile("/camelid/called.py", readFileSync(file, "utf8"));
  pyodide.FS.writeFile("/data.gz", bytes(data));
  pyodide.runPython("import sys; sys.path.insert(0, '/camelid')");
  print(pyodide.pyimport("called")[name]("/data.gz"));
} catch (error) {
  print(JSON.stringify({ error: String(error) }));
  process.exitCode = 1;
}
