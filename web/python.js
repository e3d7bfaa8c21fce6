// Start of Python: from the memory snapshot that was made with the site, else from the archives.

import { fileUrl, hasSnapshot, pyodideFiles } from "./files.js";
import { loadPyodide } from "./pyodide/pyodide.mjs";

const CORE = "/camelid"; // folder of the core, as in snapshot/make.mjs
const PAGE_BYTES = 65536; // of WebAssembly's memory

/**
 * Starts Python with the core. The npm package has no snapshot: it would be two thirds of the package.
 * @param {(done: number, total: number) => void} progress
 * @returns {Promise<{model: any, host_browser: any}>} modules of the core
 */
export async function startPython(progress) {
  progress(0, 2);
  const python = hasSnapshot ? await fromSnapshot().catch(fromArchivesBecause) : await fromArchives();
  progress(1, 2);
  const model = python.pyimport("camelid.page.model");
  const host_browser = python.pyimport("camelid.backends.webgpu.host_browser");
  progress(2, 2);
  return { model, host_browser };
}

/** Python from the snapshot, in which the core is imported. */
async function fromSnapshot() {
  const snapshot = fetchSnapshot(fileUrl("snapshot.bin"));
  snapshot.catch(() => {}); // loadPyodide awaits it later, and reports its error
  const python = await loadPyodide({
    ...pyodideFiles(),
    // Pyodide always fetches a library; this file is fetched anyway.
    stdLibURL: fileUrl("pyodide/pyodide-lock.json"),
    createPyodideModule: createWithRoom,
    _loadSnapshot: snapshot,
  });
  const library = python.FS.readdir("/lib").find((name) => name.endsWith(".zip"));
  addLazyFile(python.FS, `/lib/${library}`, fileUrl("pyodide/python_stdlib.zip"));
  python.pyimport("camelid.page.snapshot").thaw();
  return python;
}

/** `reason` is the snapshot's error. */
function fromArchivesBecause(reason) {
  console.warn(`Python starts without its memory snapshot, more slowly: ${reason.message ?? reason}`);
  return fromArchives();
}

/** Python from the archives of standard library and core. */
async function fromArchives() {
  const archive = fetchBytes(fileUrl("camelid.zip"));
  archive.catch(() => {}); // reported below, after Pyodide
  const python = await loadPyodide(pyodideFiles());
  python.unpackArchive(await archive, "zip", { extractDir: CORE });
  python.runPython(`import sys; sys.path.insert(0, "${CORE}")`);
  return python;
}

/** Creates Pyodide's module with room for the snapshot: Pyodide does not grow its first 30 MiB for it. */
async function createWithRoom(settings) {
  const { default: create } = await import("./pyodide/pyodide.asm.mjs"); // other files are on their way
  const module = await create(settings);
  module._sbrk(settings.INITIAL_MEMORY - module._sbrk(0));
  return module;
}

/** Fetches the snapshot. Pyodide checks its build, but would restore a truncated one. */
async function fetchSnapshot(url) {
  const bytes = await fetchBytes(url);
  const memoryAt = new Uint32Array(bytes, 0, 2)[1];
  const rest = (bytes.byteLength - memoryAt) % PAGE_BYTES;
  if (rest) throw new Error(`${url}: truncated, ${rest} bytes of a page of ${PAGE_BYTES}`);
  return bytes;
}

async function fetchBytes(url) {
  const response = await fetch(url);
  if (!response.ok) throw new Error(`${url}: the server answered ${response.status}`);
  return response.arrayBuffer();
}

/** Puts a file into Python's file system that is fetched when it is first opened. */
function addLazyFile(FS, path, url) {
  FS.writeFile(path, "");
  const { node } = FS.lookupPath(path);
  const { stream_ops: operations } = node;
  const open = () => {
    node.contents = fetchNow(url);
    node.usedBytes = node.contents.length;
    node.stream_ops = operations;
  };
  node.stream_ops = { ...operations, open };
}

/** Fetches bytes synchronously, which only workers can. */
function fetchNow(url) {
  const request = new XMLHttpRequest();
  request.open("GET", url, false);
  request.responseType = "arraybuffer";
  request.send();
  if (request.status !== 200) throw new Error(`${url}: the server answered ${request.status}`);
  return new Uint8Array(request.response);
}
