// Worker with Pyodide and the device. All logic is in Python (core/camelid/page/model.py); this file starts
// Python, opens files and forwards calls. In: {id, method, ...arguments}. Out: progress, event, result, error
// of that id. `cancel` and `read` name the id of a running answer and have no result.

import { Executor } from "./executor.js";
import { openSource } from "./source.js";
import { WasmExecutor } from "./wasm_executor.js";
import { loadPyodide } from "./pyodide/pyodide.mjs";

const HERE = new URL("./", import.meta.url).href;
const ARCHIVE = "camelid.zip";

// Globals that core/camelid/backends/webgpu/host_browser.py uses.
globalThis.camelid = { Executor, WasmExecutor, openSource };

/** @type {Promise<any>} modules of core/camelid in Pyodide */
const python = startPython((done, total) => tellStart([done, total]));
python.catch(() => {}); // load() reports the error
let loading = null; // the message of the call that loads the model
let model = null;
let started = [0, 2]; // steps of Python's start: done, in all

const METHODS = {
  load,
  restore,
  cancel: ({ of }) => model?.cancel(of),
  read: ({ of, n }) => model?.read(of, n),
};

self.onmessage = async ({ data }) => {
  try {
    await (METHODS[data.method] ?? call)(data);
  } catch (error) {
    tell({ id: data.id, kind: "error", error: readable(error) });
  }
};

/** Loads a model from one file or several; the first bytes and Python are fetched in parallel. */
async function load({ id, files, options }) {
  loading = id;
  tellStart(started);
  const [sources, camelid] = await Promise.all([openAll(id, files), python]);
  const source = camelid.host_browser.BrowserSource(...sources);
  model = await camelid.model.start(source, tellJson, id, JSON.stringify(options));
}

/** Opens all files of a model; their progress is told as one. */
async function openAll(id, files) {
  const counts = files.map(() => [0, 0]);
  const sum = (at) => counts.reduce((total, count) => total + count[at], 0);
  const open = (file, i) => openSource(file, (done, total) => {
    counts[i] = [done, total];
    tell({ id, kind: "progress", what: "model", done: sum(0), total: sum(1) });
  });
  const sources = await Promise.all(files.map(open));
  const size = sources.reduce((total, source) => total + source.size, 0);
  tell({ id, kind: "progress", what: "model", done: size, total: size });
  return sources;
}

async function restore({ id, file }) {
  const { host_browser } = await python;
  await call({ id, method: "restore" }, host_browser.BrowserSource(await openSource(file)));
}

/** Forwards a call to Python, which sends events, result and errors; the bytes of a file are sent here. */
async function call({ id, method, ...given }, source) {
  if (!model) throw new Error("no model is loaded yet");
  const pieces = await model.call(id, method, JSON.stringify(given), source);
  if (pieces.length) tell({ id, kind: "result", value: new Blob(pieces.toJs()) });
  pieces.destroy();
}

async function startPython(progress) {
  const [pyodide, archive] = await Promise.all([
    loadPyodide({ indexURL: `${HERE}pyodide/` }),
    fetchBytes(HERE + ARCHIVE),
  ]);
  progress(1, 2);
  pyodide.unpackArchive(archive, "zip", { extractDir: "/camelid" });
  pyodide.runPython("import sys; sys.path.insert(0, '/camelid')");
  const page = pyodide.pyimport("camelid.page.model");
  const host_browser = pyodide.pyimport("camelid.backends.webgpu.host_browser");
  progress(2, 2);
  return { model: page, host_browser };
}

/** Tells the progress of Python's start, once a call waits for it. */
function tellStart(progress) {
  started = progress;
  const [done, total] = started;
  if (loading !== null) tell({ id: loading, kind: "progress", what: "python", done, total });
}

async function fetchBytes(url) {
  const response = await fetch(url);
  if (!response.ok) throw new Error(`${url}: the server answered ${response.status}`);
  return response.arrayBuffer();
}

function tell(message) {
  self.postMessage(message);
}

function tellJson(text) {
  tell(JSON.parse(text));
}

/** An error of this worker, of a download or of Pyodide, with the fields of Python's errors. */
function readable({ name, message }) {
  return { name: name === "Error" ? "FetchError" : name, message, facts: {} };
}
