// Worker with Pyodide and the device. All logic is in Python (core/camelid/page/model.py); this file starts
// Python, opens files and forwards calls. In: {id, method, ...arguments}. Out: progress, event, result, error
// of that id. `cancel` and `read` name the id of a running answer and have no result.

import { Executor } from "./executor.js";
import { hasSnapshot } from "./files.js";
import { openImage } from "./images/decode.js";
import { asJson } from "./images/message.js";
import { startPython } from "./python.js";
import { forget, keep, recall } from "./remembered.js";
import { openSource, openSources } from "./source.js";
import { WasmExecutor } from "./wasm_executor.js";

// Globals that core/camelid/backends/webgpu/host_browser.py and core/camelid/page/images.py use.
globalThis.camelid = { Executor, WasmExecutor, openImage, openSource };

const MAX_CONFIG_BYTES = 16 << 20; // of an adapter_config.json, which lists modules at most

let loading = null; // the message of the call that loads the model
let opening = null; // promise of the model
let started = [0, 2]; // steps of Python's start: done, in all
/** @type {Promise<any>} modules of core/camelid in Pyodide */
const python = startPython((done, total) => tellStart([done, total]));
python.catch(() => {}); // load() reports the error

const METHODS = {
  load,
  restore,
  load_adapter: loadAdapter,
  cancel: async ({ of }) => (await opening)?.cancel(of),
  read: async ({ of, n }) => (await opening)?.read(of, n),
};

self.onmessage = async ({ data }) => {
  try {
    await (METHODS[data.method] ?? call)(data);
  } catch (error) {
    tell({ id: data.id, kind: "error", error: readable(error) });
  }
};

/**
 * Loads a model from one file or several, perhaps with its vision tower; the first bytes and Python are fetched
 * in parallel.
 */
async function load({ id, files, mmproj, options }) {
  loading = id;
  tellStart(started);
  const towers = mmproj ? [mmproj] : [];
  const told = (done, total) => tell({ id, kind: "progress", what: "model", done, total });
  const name = JSON.stringify([[...files, ...towers].map((file) => file.name ?? file), options]);
  if (hasSnapshot) recall(name); // in the page alone: a program with the npm package keeps nothing unasked
  try {
    const handles = [files.length > 1 ? files : files[0], ...towers];
    const [sources, camelid] = await Promise.all([openSources(handles, told), python]);
    const size = sources.reduce((sum, source) => sum + source.size, 0);
    told(size, size);
    const [bytes, ...tower] = sources.map((source) => camelid.host_browser.BrowserSource(source));
    opening = camelid.model.start(bytes, tellJson, id, JSON.stringify(options), ...tower);
    if ((await opening) && hasSnapshot) keep(name).catch(() => {}); // a full storage is no error
  } finally {
    forget();
  }
}

async function restore({ id, file }) {
  const { host_browser } = await python;
  await call({ id, method: "restore" }, host_browser.BrowserSource(await openSource(file)));
}

/** Loads an adapter: a GGUF, or safetensors with the text of their adapter_config.json. */
async function loadAdapter({ id, file, config, ...given }) {
  const { host_browser } = await python;
  const text = config ? await textOf(await openSource(config)) : "";
  const source = host_browser.BrowserSource(await openSource(file));
  await call({ id, method: "load_adapter", config: text, ...given }, source);
}

async function textOf(source) {
  return new TextDecoder().decode(await source.read(0, Math.min(source.size, MAX_CONFIG_BYTES)));
}

/** Forwards a call to Python, which sends events, result and errors; the bytes of a file are sent here. */
async function call({ id, method, ...given }, source) {
  const opened = await opening;
  if (!opened) throw new Error("no model is loaded yet");
  const pieces = await opened.call(id, method, asJson(given), source);
  if (pieces.length) tell({ id, kind: "result", value: new Blob(pieces.toJs()) });
  pieces.destroy();
}

/** Tells the progress of Python's start, once a call waits for it. */
function tellStart(progress) {
  started = progress;
  const [done, total] = started;
  if (loading !== null) tell({ id: loading, kind: "progress", what: "python", done, total });
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
