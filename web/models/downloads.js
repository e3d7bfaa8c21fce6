// Downloads of this tab: one worker each. Progress comes by a channel, from whichever tab downloads.

import { opened } from "./store.js";
import { ModelError } from "./texts.js";

const RATE_S = 3; // seconds over which the rate is the mean
const channel = new BroadcastChannel("camelid-models");

/**
 * Progress of a download: bytes, `total` null if unknown, `rate` in bytes a second.
 * @typedef {{done: number, total: number | null, rate: number}} Progress
 */

/**
 * Downloads a model to the store, resuming what is there, and returns handles of its files. Asks the browser
 * to keep the store.
 * @param {import("./address.js").RemoteModel} model
 * @param {{onProgress: (progress: Progress) => void, signal: AbortSignal}} options an abort keeps the
 *   stored part
 * @returns {Promise<import("./store.js").Handles>}
 * @throws {ModelError}, or the signal's reason
 */
export async function download(model, { onProgress, signal }) {
  const stored = await opened(model.key);
  if (stored) return stored;
  void navigator.storage.persist?.(); // a browser that asks the visitor does so meanwhile
  const rate = rateMeter();
  const listen = ({ data }) => data.key === model.key && onProgress({ ...data, rate: rate(data.done) });
  channel.addEventListener("message", listen);
  try {
    await inWorker(model, signal);
  } finally {
    channel.removeEventListener("message", listen);
  }
  return opened(model.key);
}

function inWorker(model, signal) {
  signal.throwIfAborted(); // its event is over
  const script = new URL("download_worker.js", import.meta.url);
  const worker = new Worker(script, { type: "module", name: "download" });
  const stop = () => worker.postMessage({ kind: "stop" });
  signal.addEventListener("abort", stop);
  const ended = new Promise((resolve, reject) => {
    worker.onmessage = ({ data }) => {
      if (data.kind === "done") resolve();
      else reject(data.isStopped ? signal.reason : new ModelError(data.key, data.values));
    };
    worker.onerror = ({ message = "no worker" }) => reject(new ModelError("unforeseen", { message }));
  });
  worker.postMessage({ kind: "start", model });
  return ended.finally(() => (signal.removeEventListener("abort", stop), worker.terminate()));
}

/** A function from bytes so far to bytes a second in the last seconds. */
export function rateMeter(now = () => performance.now() / 1000) {
  const samples = [];
  return (done) => {
    samples.push([now(), done]);
    while (samples.length > 2 && samples.at(-1)[0] - samples[0][0] > RATE_S) samples.shift();
    const [[start, before], [end, after]] = [samples[0], samples.at(-1)];
    return end > start ? Math.max(after - before, 0) / (end - start) : 0;
  };
}
