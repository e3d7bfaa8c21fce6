// Which of the kernels' modules this browser can run, on how many threads; and what a module says of itself.

import { LinearMemory, OutOfMemoryError } from "./wasm_memory.js";

/** Variants of the kernels, the fastest first, with the folder of each. */
const FOLDERS = { wasm_relaxed: "wasm-relaxed", wasm: "wasm-simd" };
const FILES = { alone: "camelid_cpu.wasm", shared: "camelid_cpu_threads.wasm" };
/** The last bytes of the one instruction that a variant is known by. */
const INSTRUCTIONS = { wasm_relaxed: [0x92, 2], wasm: [0x8e, 0] }; // relaxed dot of bytes; swizzle
const NOT_BUILT = "this site was built without the processor's kernels, which `make web` builds";
const INITIAL_PAGES = 256; // of a shared memory; more than the module's own data
const MOST_PAGES = 65535; // as the module says
const MOST_THREADS = 64; // of a module: abi.h
const TYPES = 64; // GGUF's types have numbers below
const PANEL_ROWS = 16;
const PANEL_COLS = [1, 32, 64, 128, 256]; // what the blocks of a type may have

/**
 * What to run of what was asked for: `variant` "" is the fastest, `threads` 0 all. A variant that this
 * browser lacks is an error; of threads there may be fewer, and `why` tells.
 * @param {{variant?: string, threads?: number}} spec
 */
export function choose({ variant = "", threads = 0 }) {
  const runs = Object.keys(FOLDERS).filter(isKnown);
  const taken = variant || runs[0];
  if (!taken) throw new Error("this browser's WebAssembly has no SIMD; use a newer one");
  if (!runs.includes(taken)) throw new Error(`there is no variant '${variant}' here; there is ${runs}`);
  const reasons = taken === "wasm" && !variant ? ["this browser has no relaxed SIMD"] : [];
  const asked = threads || globalThis.navigator?.hardwareConcurrency || 1;
  const wanted = Math.min(asked, MOST_THREADS);
  if (wanted < asked) reasons.push(`of ${asked} threads ${MOST_THREADS}, the most there can be`);
  const choice = { variant: taken, threads: wanted, shared: wanted > 1, why: reasons.join("; ") };
  const obstacle = wanted > 1 ? obstacleToThreads() : "";
  return obstacle ? alone(choice, obstacle) : choice;
}

/** A choice on one thread, as something is in the way of more. */
export function alone({ variant, why }, obstacle) {
  const reasons = [why, `${obstacle}, so one thread`].filter(Boolean);
  return { variant, threads: 1, shared: false, why: reasons.join("; ") };
}

/** Whether the engine takes a module with the variant's instruction, on two vectors of bytes. */
function isKnown(variant) {
  const code = [0, 0x41, 1, 0xfd, 15, 0x41, 2, 0xfd, 15, 0xfd, ...INSTRUCTIONS[variant], 0x0b];
  const header = [0, 0x61, 0x73, 0x6d, 1, 0, 0, 0];
  const type = [1, 5, 1, 0x60, 0, 1, 0x7b, 3, 2, 1, 0]; // one function, which gives a vector
  const codes = [10, code.length + 2, 1, code.length, ...code];
  return WebAssembly.validate(Uint8Array.of(...header, ...type, ...codes));
}

function obstacleToThreads() {
  if (globalThis.crossOriginIsolated === false) return "this page is not cross-origin isolated";
  if (typeof SharedArrayBuffer === "undefined") return "this browser shares no memory between threads";
  return typeof Worker === "undefined" ? "this browser starts no workers here" : "";
}

/** A module's bytes, from beside this file. */
export async function fetchFile(path) {
  const url = new URL(path, import.meta.url);
  const response = await fetch(url);
  if (response.status === 404) throw new Error(`${url}: the server answered 404; ${NOT_BUILT}`);
  if (!response.ok) throw new Error(`${url}: the server answered ${response.status}`);
  return response.arrayBuffer();
}

/** One instance of the kernels, its memory, and what it is made of. */
export class Kernels {
  constructor(module, instance, memory, build) {
    [this.module, this.exports, this.build] = [module, instance.exports, build];
    this.sharedMemory = memory; // undefined where the module has its own
    const raw = memory ?? this.exports.memory;
    this.memory = new LinearMemory(raw, this.exports.__heap_base.value >>> 0);
  }

  /**
   * @param {{variant: string, shared: boolean}} choice
   * @param {(path: string) => Promise<ArrayBuffer>} readFile
   */
  static async open({ variant, shared }, readFile) {
    const bytes = await readFile(`${FOLDERS[variant]}/${shared ? FILES.shared : FILES.alone}`);
    const module = await WebAssembly.compile(bytes);
    const memory = shared ? reserveShared() : undefined;
    const instance = await WebAssembly.instantiate(module, { env: { memory } });
    return new Kernels(module, instance, memory, await digest(bytes));
  }

  /** Sizes of records, names by number, and for each type of weights that has panels what one of them takes:
   * [columns, bytes], of 16 rows. */
  describe() {
    const { cam_record_bytes, cam_op_name, cam_word } = this.exports;
    const records = until((i) => cam_record_bytes(i));
    return { records, kinds: this.#names(cam_op_name), words: this.#names(cam_word), panels: this.#panels() };
  }

  #names(nameOf) {
    return until((i) => nameOf(i)).map((at) => this.#text(at >>> 0));
  }

  #text(at) {
    const { bytes } = this.memory;
    return String.fromCharCode(...bytes.subarray(at, bytes.indexOf(0, at)));
  }

  #panels() {
    const bytesOf = (type, cols) => Number(this.exports.cam_panel_bytes(0, type, PANEL_ROWS, cols));
    const types = Array.from({ length: TYPES }, (_, type) => type);
    const found = types.map((type) => [type, PANEL_COLS.find((cols) => bytesOf(type, cols))]);
    return Object.fromEntries(
      found.filter(([, cols]) => cols).map(([type, cols]) => [type, [cols, bytesOf(type, cols)]]),
    );
  }
}

/** What a function gives for 0, 1, ... up to the first 0. */
function until(valueOf) {
  const values = [];
  for (let value = valueOf(0); value; value = valueOf(values.length)) values.push(value);
  return values;
}

/** As much address space as the browser gives. */
function reserveShared() {
  for (let maximum = MOST_PAGES; maximum >= INITIAL_PAGES; maximum >>= 1) {
    try {
      return new WebAssembly.Memory({ initial: INITIAL_PAGES, maximum, shared: true });
    } catch (error) {
      if (!(error instanceof RangeError)) throw error;
    }
  }
  throw new OutOfMemoryError("out of memory: no shared memory can be reserved");
}

/** A name for the module; "" where a page is not secure. */
async function digest(bytes) {
  if (!globalThis.crypto?.subtle) return "";
  const hash = new Uint8Array(await crypto.subtle.digest("SHA-256", bytes));
  return [...hash.subarray(0, 8)].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}
