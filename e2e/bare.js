// Calls of a test, as JSON, become calls of one executor. Bytes travel as base64.

import { Executor } from "./executor.js";
import { fromBase64 } from "./section.js";
import { openSource } from "./source.js";

globalThis.executor = new Executor();

/** Calls methods in order, `run` without waiting; answers with the last one's value or the first error. */
globalThis.callAll = (calls) =>
  answer(async () => {
    let value;
    for (const [method, ...args] of calls) value = await globalThis.executor[method](...args.map(decoded));
    return value instanceof Uint8Array ? value.toBase64() : value;
  });

/** Opens a source and reads ranges of it, one after the other; a File if `asFile` is set. */
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
