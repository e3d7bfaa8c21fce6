// Choice of the kernels' module and thread count for this browser; loading and description of a module.

import { fileUrl } from "./files.js";
import { LinearMemory, OutOfMemoryError } from "./wasm_memory.js";

/** Variant of the kernels -> folder; the fastest first. */
const FOLDERS = { wasm_relaxed: "wasm-relaxed", wasm: "wasm-simd" };
const FILES = { alone: "camelid_cpu.wasm", shared: "camelid_cpu_threads.wasm" };
/** Opcode bytes of an instruction that only this variant needs. */
const INSTRUCTIONS = { wasm_relaxed: [0x92, 2], wasm: [0x8e, 0] }; // relaxed dot of bytes; swizzle
const NOT_BUILT = "this site was built without the CPU kernels; run `make web`";
const INITIAL_PAGES = 256; // of a shared memory; more than the module's own data
const MOST_PAGES = 65535; // maximum declared by the module
const MOST_THREADS = 64; // CAM_MOST_THREADS of abi.h
const TYPES = 64; // all GGUF type ids are below
const PANEL_ROWS = 16;
const PANEL_COLS = [1, 32, 64, 128, 256]; // possible columns of a block

/**
 * Chooses variant and thread count: `variant` "" is the fastest, `threads` 0 is all processors. Throws if
 * this browser does not support the variant. `why` of the result states the reason for fewer threads.
 * @param {{variant?: string, threads?: number}} spec
 */
export function choose({ variant = "", threads = 0 }) {
  const runs = Object.keys(FOLDERS).filter(isKnown);
  const taken = variant || runs[0];
  if (!taken) throw new Error("this browser's WebAssembly has no SIMD; use a newer one");
  if (!runs.includes(taken)) {
    throw new Error(`no variant '${variant}' in this browser; supported: ${runs.join(", ")}`);
  }
  const reasons = taken === "wasm" && !variant ? ["this browser has no relaxed SIMD"] : [];
  const asked = threads || globalThis.navigator?.hardwareConcurrency || 1;
  const wanted = Math.min(asked, MOST_THREADS);
  if (wanted < asked) reasons.push(`${MOST_THREADS} of ${asked} threads, the maximum`);
  const choice = { variant: taken, threads: wanted, shared: wanted > 1, why: reasons.join("; ") };
  const obstacle = wanted > 1 ? obstacleToThreads() : "";
  return obstacle ? alone(choice, obstacle) : choice;
}

/** The same choice on one thread, with the obstacle to several threads as the reason. */
export function alone({ variant, why }, obstacle) {
  const reasons = [why, `${obstacle}, so one thread`].filter(Boolean);
  return { variant, threads: 1, shared: false, why: reasons.join("; ") };
}

/** True if the engine validates a module with the variant's instruction, on two vectors of bytes. */
function isKnown(variant) {
  const code = [0, 0x41, 1, 0xfd, 15, 0x41, 2, 0xfd, 15, 0xfd, ...INSTRUCTIONS[variant], 0x0b];
  const header = [0, 0x61, 0x73, 0x6d, 1, 0, 0, 0];
  const type = [1, 5, 1, 0x60, 0, 1, 0x7b, 3, 2, 1, 0]; // one function that returns a vector
  const codes = [10, code.length + 2, 1, code.length, ...code];
  return WebAssembly.validate(Uint8Array.of(...header, ...type, ...codes));
}

function obstacleToThreads() {
  if (globalThis.crossOriginIsolated === false) return "this page is not cross-origin isolated";
  if (typeof SharedArrayBuffer === "undefined") return "this browser has no SharedArrayBuffer";
  return typeof Worker === "undefined" ? "this browser has no workers here" : "";
}

/** Fetches a module of the site. */
export async function fetchFile(path) {
  const url = fileUrl(path);
  const response = await fetch(url);
  if (response.status === 404) throw new Error(`${url}: the server answered 404; ${NOT_BUILT}`);
  if (!response.ok) throw new Error(`${url}: the server answered ${response.status}`);
  return response.arrayBuffer();
}

/** One instance of the kernels, with its module, memory and hash. */
export class Kernels {
  constructor(module, instance, memory, build) {
    [this.module, this.exports, this.build] = [module, instance.exports, build];
    this.sharedMemory = memory; // undefined if the module defines its own memory
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

  /** Record sizes, names of ops and words by number, and [columns, bytes] of the smallest panel of each type
   * with panels. */
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

/** Values of a function for 0, 1, ... up to the first 0. */
function until(valueOf) {
  const values = [];
  for (let value = valueOf(0); value; value = valueOf(values.length)) values.push(value);
  return values;
}

/** Reserves a shared memory with the largest maximum that the browser permits. */
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

/** Hash of the module, 16 hex digits; "" on an insecure page, which has no crypto.subtle. */
async function digest(bytes) {
  if (!globalThis.crypto?.subtle) return "";
  const hash = new Uint8Array(await crypto.subtle.digest("SHA-256", bytes));
  return [...hash.subarray(0, 8)].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}
