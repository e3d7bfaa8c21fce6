// Forwards calls from a test, as JSON, to one executor. Bytes are base64.

import { Executor } from "./executor.js";
import { forget, keep, recall } from "./remembered.js";
import { fromBase64 } from "./section.js";
import { openSource } from "./source.js";

Object.assign(globalThis, { executor: new Executor(), forget, keep, recall });

/** Calls methods in order; resolves to the last call's value or the first error. */
globalThis.callAll = (calls) =>
  answer(async () => {
    let value;
    for (const [method, ...args] of calls) value = await globalThis.executor[method](...args.map(decoded));
    return value instanceof Uint8Array ? value.toBase64() : value;
  });

/** Opens a source (a File if `asFile` is set) and reads ranges, one after the other. */
globalThis.readSource = (url, ranges, asFile) =>
  answer(async () => {
    const handle = asFile ? new File([await (await fetch(url)).blob()], "a file") : url;
    let arrived = 0;
    const source = await openSource(handle, (done) => (arrived = done));
    const parts = [];
    for (const [offset, length] of ranges) parts.push((await source.read(offset, length)).toBase64());
    return { name: source.name, size: source.size, parts, arrived };
  });

async function answer(work) {
  try {
    return { value: await work() };
  } catch (error) {
    return { error: `${error.name}: ${error.message}` };
  }
}

function decoded(argument) {
  return argument?.base64 === undefined ? argument : fromBase64(argument.base64);
}
