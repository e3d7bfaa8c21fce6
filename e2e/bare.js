// Calls of a test, as JSON, become calls of one executor. Bytes travel as base64.

import { Executor } from "./executor.js";
import { fromBase64 } from "./section.js";

globalThis.executor = new Executor();

/** Calls methods in order, `run` without waiting; answers with the last one's value or the first error. */
globalThis.callAll = async (calls) => {
  try {
    let value;
    for (const [method, ...args] of calls) value = await globalThis.executor[method](...args.map(decoded));
    return { value: value instanceof Uint8Array ? toBase64(value) : value };
  } catch (error) {
    return { error: String(error) };
  }
};

function decoded(argument) {
  return argument?.base64 === undefined ? argument : fromBase64(argument.base64);
}

function toBase64(bytes) {
  return btoa(Array.from(bytes, (byte) => String.fromCharCode(byte)).join(""));
}
