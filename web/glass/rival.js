// wllama in a frame of its own, whose policy allows its workers (rival.html); removing the frame ends them.

import { make } from "../elements.js";
import { text } from "./texts.js";

const GREETING_MS = 10_000; // in which the frame's script answers, if it has come
const LOADING_S = 180; // in which wllama has loaded a model of 4 GB, its largest, from a slow disk
const PAGE = new URL("rival.html", import.meta.url);

/**
 * Loads a model in wllama.
 * @param {Blob[]} files
 * @param {{context: number, signal: AbortSignal}} how
 */
export async function openRival(files, { context, signal }) {
  signal.throwIfAborted(); // its event is over
  const frame = make("iframe", { src: PAGE.href, hidden: true, title: "wllama" });
  const aborted = new Promise((_, reject) => {
    signal.addEventListener("abort", () => (frame.remove(), reject(signal.reason)), { once: true });
  });
  aborted.catch(() => {}); // the calls in progress throw it
  document.body.append(frame);
  const close = () => frame.remove();
  try {
    const call = await Promise.race([connect(frame), aborted]);
    const ask = (given) => Promise.race([call(given), aborted]);
    const facts = await within(LOADING_S, ask({ method: "load", files, context }));
    return { facts, ask: (prompt, tokens) => ask({ method: "ask", prompt, tokens }), close };
  } catch (error) {
    close();
    throw error;
  }
}

/** A function that sends a call to the frame and resolves to its answer. */
async function connect(frame) {
  await new Promise((resolve) => frame.addEventListener("load", resolve, { once: true }));
  const { port1, port2 } = new MessageChannel();
  const call = (given) => new Promise((resolve, reject) => {
    port1.onmessage = ({ data: { value, error, isAbsent } }) => {
      if (isAbsent || error) reject(new Error(isAbsent ? text("race.absent") : error));
      else resolve(value);
    };
    if (given) port1.postMessage(given);
  });
  const greeted = call(null);
  frame.contentWindow.postMessage("connect", location.origin, [port2]);
  const late = new Promise((resolve) => setTimeout(() => resolve("late"), GREETING_MS));
  if ((await Promise.race([greeted, late])) === "late") throw new Error(text("race.frame"));
  return call;
}

/** The result of loading wllama, which never answers if one of its threads does not start. */
async function within(seconds, loading) {
  let timer;
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error(text("race.slow", { seconds }))), 1000 * seconds);
  });
  try {
    return await Promise.race([loading, late]);
  } finally {
    clearTimeout(timer);
  }
}
