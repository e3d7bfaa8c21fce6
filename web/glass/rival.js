// wllama in a frame of its own, whose policy allows its workers (rival.html); removing the frame ends them.

import { make } from "../elements.js";
import { text } from "./texts.js";

const PAGE = new URL("rival.html", import.meta.url);

/**
 * Loads a model in wllama.
 * @param {Blob[]} files
 * @param {{context: number, signal: AbortSignal}} how
 */
export async function openRival(files, { context, signal }) {
  const frame = make("iframe", { src: PAGE.href, hidden: true, title: "wllama" });
  document.body.append(frame);
  const close = () => frame.remove();
  signal.addEventListener("abort", close, { once: true });
  try {
    const call = await connect(frame, signal);
    const facts = await call({ method: "load", files, context });
    return { facts, ask: (prompt, tokens) => call({ method: "ask", prompt, tokens }), close };
  } catch (error) {
    close();
    throw error;
  }
}

/** A function that sends a call to the frame and resolves to its answer. */
async function connect(frame, signal) {
  await new Promise((resolve) => frame.addEventListener("load", resolve, { once: true }));
  const { port1, port2 } = new MessageChannel();
  frame.contentWindow.postMessage("connect", location.origin, [port2]);
  return (given) => new Promise((resolve, reject) => {
    signal.addEventListener("abort", () => reject(signal.reason), { once: true });
    port1.onmessage = ({ data: { value, error, isAbsent } }) => {
      if (isAbsent || error) reject(new Error(isAbsent ? text("race.absent") : error));
      else resolve(value);
    };
    port1.postMessage(given);
  });
}
