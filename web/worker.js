// Worker with Pyodide and the device. All logic is in Python; this file starts Python and forwards messages.
// In: load, ask, stop, reset, save, open. Out: progress, ready, token, notice, done, saved, opened,
// error.

import { Executor } from "./executor.js";
import { startPython } from "./python.js";
import { openSource } from "./source.js";
import { WasmExecutor } from "./wasm_executor.js";

// Globals that core/camelid/backends/webgpu/host_browser.py uses.
globalThis.camelid = { Executor, WasmExecutor, openSource };

/** @type {Promise<any>} modules of core/camelid in Pyodide */
const python = startPython((done, total) => tell({ kind: "progress", what: "python", done, total }));
python.catch(() => {}); // load() reports the error
let chat = null;

const HANDLERS = { load, ask, save, open, stop: () => chat?.stop(), reset: () => chat?.reset() };

self.onmessage = async ({ data }) => {
  try {
    await HANDLERS[data.kind](data);
  } catch (error) {
    tell({ kind: "error", during: data.kind, ...readable(error) });
  }
};

/** Loads a model; the model file and Python are fetched in parallel. */
async function load({ model, options, defaults }) {
  const progress = (done, total) => tell({ kind: "progress", what: "model", done, total });
  const [source, camelid] = await Promise.all([openSource(model, progress), python]);
  progress(source.size, source.size);
  const { BrowserSource } = camelid.host_browser;
  const words = [JSON.stringify(options), JSON.stringify(defaults)];
  chat = await camelid.session.start(BrowserSource(source), tellJson, ...words);
}

async function ask({ text, options, alone }) {
  if (!chat) throw new Error("no model is loaded yet");
  await chat.ask(text, JSON.stringify(options), alone);
}

async function save() {
  const pieces = await chat.save();
  tell({ kind: "saved", blob: new Blob(pieces.toJs()) });
  pieces.destroy();
}

async function open({ file }) {
  const [source, camelid] = await Promise.all([openSource(file), python]);
  await chat.open(camelid.host_browser.BrowserSource(source));
}

function tell(message) {
  self.postMessage(message);
}

function tellJson(text) {
  tell(JSON.parse(text));
}

/** Fields of an error message. A Python error is reduced to its last line, without the class name. */
function readable(error) {
  if (error?.constructor?.name !== "PythonError") return { type: error.name, message: error.message };
  const last = error.message.trim().split("\n").at(-1);
  return { type: error.type, message: last.replace(/^[\w.]+: /, ""), detail: error.message };
}
