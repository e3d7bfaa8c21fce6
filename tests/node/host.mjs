// Serves an executor of the page to Python, over standard input and output: `node host.mjs --executor wasm`.
// A message is two lengths (u32), a call as JSON, then bytes; so is an answer. Calls run in order.

import { open, readFile } from "node:fs/promises";
import { setFlagsFromString } from "node:v8";
import { Worker as NodeWorker } from "node:worker_threads";

import { Source } from "../../web/source.js";

const ROOT = new URL("../../", import.meta.url);
const MODULES = new URL("native/camelid_native/lib/", ROOT);

const V8 = parseFloat(process.versions.v8);
// Earlier versions hide relaxed SIMD, and their baseline compiler adds a dot product to itself.
const RELAXED_SINCE = 11.4;
const OLD_FLAGS = ["--experimental-wasm-relaxed-simd", "--no-liftoff"];

const EXECUTORS = {
  wasm: async () => {
    globalThis.Worker = PageWorker;
    if (V8 < RELAXED_SINCE) OLD_FLAGS.forEach((flag) => setFlagsFromString(flag));
    const { WasmExecutor } = await import("../../web/wasm_executor.js");
    return new WasmExecutor((path) => readFile(new URL(path, MODULES)));
  },
};

/** The part of a page's Worker that the executor uses. */
class PageWorker {
  #worker;

  constructor(url) {
    const thread = new URL("./thread.mjs", import.meta.url);
    this.#worker = new NodeWorker(thread, { workerData: { url: `${url}` } });
    this.#worker.on("message", (data) => this.onmessage?.({ data }));
    this.#worker.on("error", ({ message }) => this.onerror?.({ message, preventDefault() {} }));
  }

  postMessage(data) {
    this.#worker.postMessage(data);
  }

  terminate() {
    this.#worker.terminate();
  }
}

/** Each call's arguments: the message's arguments, then its bytes. */
const CALLS = {
  open: (executor, [spec]) => executor.open(spec),
  load: async (executor, [section, paths]) => {
    const files = await openFiles(paths);
    try {
      await executor.load(section, mapValues(files, (file) => file.source));
    } finally {
      for (const { file } of Object.values(files)) await file.close();
    }
  },
  allocate: (executor, [section]) => executor.allocate(section),
  compile: (executor, [section]) => executor.compile(section),
  run: (executor, [program], bytes) => executor.run(program, bytes),
  read: (executor, [ticket]) => executor.read(ticket),
  readState: (executor, [buffer, offset, n]) => executor.readState(buffer, offset, n),
  writeState: (executor, [buffer, offset], bytes) => executor.writeState(buffer, offset, bytes),
  memory: (executor) => executor.memory(),
  counters: (executor) => ({ ...executor.counters, mostRead }),
  close: (executor) => executor.close(),
};

let mostRead = 0; // largest read of a file, in bytes

async function openFiles(paths) {
  const files = {};
  for (const [name, path] of Object.entries(paths)) {
    const file = await open(path);
    const { size } = await file.stat();
    const read = async (start, end) => {
      mostRead = Math.max(mostRead, end - start);
      const bytes = new Uint8Array(end - start);
      const { bytesRead } = await file.read(bytes, 0, bytes.length, start);
      if (bytesRead < bytes.length) throw new Error(`${path}: ends at byte ${start + bytesRead}`);
      return bytes;
    };
    files[name] = { file, source: new Source(path, size, read) };
  }
  return files;
}

function mapValues(record, make) {
  return Object.fromEntries(Object.entries(record).map(([key, value]) => [key, make(value)]));
}

let wake = () => {}; // called for new input and at its end
process.stdin.on("readable", () => wake()).on("end", () => wake());

async function* messages() {
  for (let head = await take(8); head; head = await take(8)) {
    const text = await take(head.readUInt32LE(0));
    const bytes = await take(head.readUInt32LE(4));
    yield [JSON.parse(text), new Uint8Array(bytes)];
  }
}

/** The next n bytes; null if the input ends before. */
async function take(n) {
  if (!n) return Buffer.alloc(0);
  for (let data = process.stdin.read(n); ; data = process.stdin.read(n)) {
    if (data) return data.length === n ? data : null;
    if (process.stdin.readableEnded) return null;
    await new Promise((next) => (wake = next));
  }
}

function answer(content, bytes = new Uint8Array(0)) {
  const text = Buffer.from(JSON.stringify(content));
  const head = Buffer.alloc(8);
  head.writeUInt32LE(text.length, 0);
  head.writeUInt32LE(bytes.length, 4);
  process.stdout.write(Buffer.concat([head, text, bytes]));
}

if (process.argv.includes("--blocking")) delete Atomics.waitAsync; // browsers without it
const executor = await EXECUTORS[process.argv[process.argv.indexOf("--executor") + 1]]();
for await (const [{ call, given }, bytes] of messages()) {
  try {
    const value = await CALLS[call](executor, given, bytes);
    if (value instanceof Uint8Array) answer({}, value);
    else answer({ value });
  } catch ({ name, message }) {
    answer({ error: { name, message } });
  }
}
process.exit(0);
