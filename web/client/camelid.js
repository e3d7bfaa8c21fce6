// Camelid's client: loads a model in a worker and talks to it. The page and the npm package share it.

import { Calls } from "./calls.js";
import { requestError } from "./errors.js";
import { LLM } from "./llm.js";
import { sharedName, TabWorker } from "./tabs.js";

export { CamelidError } from "./errors.js";
export { LLM } from "./llm.js";
export { Session } from "./session.js";
export { Stream } from "./stream.js";

export const WORKER = new URL("../worker.js", import.meta.url);

/**
 * @typedef {string | URL | Blob | FileSystemFileHandle} ModelPart a GGUF file: its address, or the file
 */

/**
 * Loads a model in a worker.
 * @param {ModelPart | ModelPart[]} model one file, or all files of a model in parts
 * @param {object} [given] options of Python's `load`, and:
 * @param {"auto" | "webgpu" | "cpu"} [given.backend] auto: WebGPU if there is a hardware adapter
 * @param {string} [given.adapter] part of the WebGPU adapter's name
 * @param {number} [given.threads] of the processor
 * @param {"f32" | "q8"} [given.activations] input of matrix products; q8: rounded to 8 bits
 * @param {number} [given.context] most tokens of prompt and answer
 * @param {number} [given.parallel] requests that run at once, by default 1; later ones wait
 * @param {string} [given.kv_type] storage type of the KV cache
 * @param {ModelPart} [given.mmproj] the GGUF file of the model's vision tower, with which it takes images
 * @param {(progress: {what: "python" | "model" | "stages", done: number, total: number, text?: string}) =>
 *   void} [given.onProgress] bytes of the model, and steps of the others
 * @param {(text: string, key?: string) => void} [given.onNotice] gets notices: the device was lost and is
 *   open again, another tab runs the model no longer; `key` names the text for a translation
 * @param {AbortSignal} [given.signal] stops loading
 * @param {boolean} [given.shared] tabs of one site that open the same file run it once, in one of them. A
 *   chosen file, a model in parts and one with mmproj are never shared
 * @param {Worker | string | URL | (() => Worker)} [given.worker] worker.js of this version, its address, or
 *   a function that starts it
 * @returns {Promise<LLM>} rejects with CamelidError, or with the signal's reason
 */
export async function load(model, given = {}) {
  const { onProgress, onNotice, signal, shared = false, worker = WORKER, mmproj: tower, ...options } = given;
  signal?.throwIfAborted();
  const files = [model].flat().map(located);
  const mmproj = tower && located(tower);
  const all = mmproj ? [...files, mmproj] : files;
  const start = () => startWorker(worker);
  const calls = new Calls(shared ? new TabWorker(sharedName(all, options), start) : start());
  if (onNotice) calls.onNotice = onNotice;
  const stop = () => calls.end(signal.reason);
  signal?.addEventListener("abort", stop);
  try {
    const told = ({ kind, id, ...progress }) => onProgress?.(progress);
    return new LLM(calls, await calls.call("load", { files, mmproj, options }, told).result);
  } catch (error) {
    calls.end(error);
    throw error;
  } finally {
    signal?.removeEventListener("abort", stop);
  }
}

/** A model's file as the worker takes it: addresses are relative to the page, not to the worker. */
function located(part) {
  if (typeof part === "string" || part instanceof URL) return new URL(part, globalThis.location?.href).href;
  if (part instanceof Blob || typeof part?.getFile === "function") return part;
  const found = part === null ? "null" : typeof part;
  const expected = "the address of a GGUF file, a File, a Blob or a FileSystemFileHandle";
  throw requestError("model", `the model is ${found}, expected ${expected}`);
}

/** The worker of the option `worker` of `load`. */
export function startWorker(worker) {
  if (typeof worker === "function") return worker();
  if (typeof worker !== "string" && !(worker instanceof URL)) return worker;
  return new Worker(worker, { type: "module", name: "camelid" });
}
