// Executes sections (camelid_native/wasm/tape.py) on the CPU kernels as WebAssembly; it has no model code.
// The interface equals executor.js, so that the same Python host drives both.

import { fromBase64 } from "./section.js";
import { Loader } from "./wasm_load.js";
import { OutOfMemoryError } from "./wasm_memory.js";
import { Kernels, alone, choose, fetchFile } from "./wasm_module.js";
import { ManyThreads, OneThread, ThreadError } from "./wasm_pool.js";
import { Queue } from "./wasm_queue.js";

/**
 * The kernels with one linear memory. `load`, `allocate` and `compile` run one after the other; `run`,
 * `readState` and `writeState` take effect in the order of the calls.
 */
export class WasmExecutor {
  #readFile;
  /** @type {Kernels | null} */
  #kernels = null;
  #threads = null;
  #queue = null;
  /** @type {Map<number, {name: string, kind: string, at: number, bytes: number}>} */
  #buffers = new Map();
  #numbers = new Map(); // buffer numbers by name
  /** @type {(Program | null)[]} */
  #programs = [];
  #tickets = new Map(); // readable steps, by ticket
  #lastTicket = 0;
  #building = Promise.resolve();
  #made = new Set(); // buffer numbers of the section being built
  #fault = null; // error that ended the kernels; every later call throws it

  /** @param {(path: string) => Promise<ArrayBuffer>} readFile reads a module, "wasm-simd/camelid_cpu.wasm" */
  constructor(readFile = fetchFile) {
    this.#readFile = readFile;
    /** Cheap counters; they never decrease, except inFlight. */
    this.counters = { runs: 0, inFlight: 0, maxInFlight: 0, bytesLoaded: 0, bytesReadBack: 0 };
  }

  /**
   * Starts the kernels and their threads, after closing the executor if it is open.
   * @param {{variant?: string, threads?: number}} spec see `choose`
   */
  async open(spec) {
    await this.close();
    await this.#building; // a build in progress fails
    const { choice, kernels, threads } = await start(choose(spec), this.#readFile);
    this.#threads = threads;
    this.#queue = new Queue(threads.isParallel);
    this.#kernels = kernels;
    return { ...choice, build: kernels.build, ...kernels.describe() };
  }

  /**
   * Loads the section's weights in order.
   * @param {object} section
   * @param {Record<string, string | Blob | FileSystemFileHandle | import("./source.js").Source>} sources
   */
  load(section, sources) {
    return this.#build(section, async () => {
      const loader = new Loader(this.#kernels, sources, this.counters);
      for (const [form, weight, number] of section.commands) {
        await loader.load(form, weight, this.#buffers.get(number).at);
      }
    });
  }

  /**
   * Allocates zeroed memory for states. Frees the old states, unless the section adds to them; old programs and
   * tickets then become invalid.
   */
  allocate(section) {
    return this.#build(section, () => {}, async () => {
      if (section.adds) return;
      await this.#queue.add(() => {}).done();
      this.#free(({ kind }) => kind !== "load");
      this.#programs.fill(null);
      this.#tickets.clear();
    });
  }

  /**
   * Allocates the buffers of a program's steps.
   * @returns {Promise<number>} the program's number
   */
  compile(section) {
    return this.#build(section, () => {
      const at = this.#buffers.get(section.program).at;
      const scratchBytes = Number(this.#kernels.exports.cam_scratch_bytes(0, at, this.#threads.n));
      const scratch = this.#makeOwn("scratch", scratchBytes, section);
      const slotBytes = section.step_bytes + section.result.bytes;
      const slots = this.#makeOwn("ring", section.ring * slotBytes, section);
      [scratch, scratchBytes].forEach((value, i) => {
        this.#kernels.memory.numbers(Uint32Array, at + section.scratch[i], 1)[0] = value;
      });
      return this.#programs.push(new Program(this.#kernels, this.#threads, section, at, slots));
    });
  }

  /**
   * Queues one step, which runs when the steps before it have ended.
   * @param {number} number number of the program
   * @param {Uint8Array} step copied
   * @returns {number} a ticket, readable until a later step reuses its slot
   */
  run(number, step) {
    this.#check();
    const program = this.#programs[number - 1];
    if (!program) throw new Error(`there is no program ${number} since the last open or allocate`);
    const slot = program.take(step);
    const job = this.#add(() => program.run(slot));
    const ticket = (this.#lastTicket += 1);
    this.#tickets.delete(slot.ticket);
    slot.ticket = ticket;
    this.#tickets.set(ticket, { program, slot, job, reading: null });
    const { counters } = this;
    counters.runs += 1;
    counters.inFlight += 1;
    counters.maxInFlight = Math.max(counters.maxInFlight, counters.inFlight);
    return ticket;
  }

  /**
   * The step's results. A cancelled read can be repeated and returns the same bytes.
   * @param {number} ticket
   * @returns {Promise<Uint8Array>}
   */
  async read(ticket) {
    const entry = this.#tickets.get(ticket);
    if (!entry) throw new Error(`there is no step in flight with ticket ${ticket}`);
    return (entry.reading ??= this.#readOnce(entry));
  }

  async #readOnce({ program, slot, job }) {
    this.counters.inFlight -= 1;
    await job.done();
    const data = program.give(slot);
    this.counters.bytesReadBack += data.length;
    return data;
  }

  /**
   * @param {string} name of the buffer
   * @returns {Promise<Uint8Array>} the bytes after all steps submitted so far
   */
  readState(name, offset, bytes) {
    return this.#inOrder(name, offset, bytes, (at) => this.#kernels.memory.bytes.slice(at, at + bytes));
  }

  /** @param {Uint8Array} data */
  writeState(name, offset, data) {
    return this.#inOrder(name, offset, data.length, (at) => this.#kernels.memory.bytes.set(data, at));
  }

  /** @returns {Record<string, number>} bytes of every live buffer by name */
  memory() {
    const sizes = {};
    for (const { name, bytes } of this.#buffers.values()) sizes[name] = (sizes[name] ?? 0) + bytes;
    return sizes;
  }

  /** Ends the threads and frees all memory. The executor can be opened again. */
  async close() {
    this.#threads?.stop();
    this.#queue?.end(new Error("the backend was closed"));
    this.#kernels = this.#threads = this.#queue = this.#fault = null;
    this.#buffers.clear();
    this.#numbers.clear();
    this.#tickets.clear();
    this.#programs = [];
  }

  #check() {
    if (this.#fault) throw this.#fault;
    if (!this.#kernels) throw new Error("no kernels are open");
  }

  /** Calls `work` on a part of a buffer, after all earlier steps and before all later ones. */
  async #inOrder(name, offset, bytes, work) {
    this.#check();
    const buffer = this.#buffers.get(this.#numbers.get(name));
    if (!buffer || offset < 0 || offset + bytes > buffer.bytes) {
      throw new Error(`there is no buffer '${name}' with bytes ${offset} to ${offset + bytes}`);
    }
    return this.#add(() => work(buffer.at + offset)).done();
  }

  /** Queues work. After a failure the kernels are not used again, as the state of their memory is unknown. */
  #add(work) {
    return this.#queue.add(async () => {
      this.#check();
      try {
        return await work();
      } catch (error) {
        throw this.#failed(error);
      }
    });
  }

  #failed(error) {
    if (!(error instanceof WebAssembly.RuntimeError || error instanceof ThreadError)) return error;
    return (this.#fault ??= new Error(`the kernels failed: ${error.message}; load the model again`));
  }

  /** Allocates a section's buffers, then calls `work`; frees the buffers if it fails. */
  #build(section, work, before = async () => {}) {
    const built = this.#building.then(async () => {
      this.#check();
      await before();
      this.#made.clear();
      try {
        for (const buffer of section.buffers) this.#make(buffer, section.kind);
        for (const buffer of section.buffers) this.#fill(buffer);
        return await work();
      } catch (error) {
        this.#free((_, number) => this.#made.has(number));
        const isMemory = error instanceof RangeError; // allocation of a JavaScript array
        throw this.#failed(isMemory ? new OutOfMemoryError(`out of memory: ${error.message}`) : error);
      }
    });
    this.#building = built.catch(() => {});
    return built;
  }

  #make({ number, name, bytes }, kind) {
    const at = this.#kernels.memory.take(bytes);
    this.#buffers.set(number, { name, kind, at, bytes });
    this.#numbers.set(name, number);
    this.#made.add(number);
    return at;
  }

  /** Allocates a buffer of a program that its section does not list. */
  #makeOwn(what, bytes, { name, kind }) {
    return this.#make({ number: `${what}/${name}`, name: `${what}/${name}`, bytes }, kind);
  }

  /** Writes a buffer's initial bytes and resolves the addresses in them. */
  #fill({ number, data, addresses }) {
    if (!data) return;
    const { at, bytes } = this.#buffers.get(number);
    this.#kernels.memory.bytes.set(fromBase64(data), at);
    for (let record = at; addresses && record < at + bytes; record += addresses.each) {
      for (const field of addresses.fields) this.#place(record + field);
    }
  }

  /** Resolves an address in a record: the high half is a buffer number, the low half an offset. */
  #place(at) {
    const address = this.#kernels.memory.numbers(Uint32Array, at, 2);
    const [offset, number] = address;
    if (!number) return;
    address.set([this.#buffers.get(number).at + offset, 0]);
  }

  #free(isOver) {
    for (const [number, buffer] of this.#buffers) {
      if (!isOver(buffer, number)) continue;
      this.#kernels.memory.give(buffer.at, buffer.bytes);
      this.#buffers.delete(number);
    }
  }
}

/** Opens the chosen kernels and starts their threads; falls back to one thread if workers do not start. */
async function start(choice, readFile) {
  const kernels = await Kernels.open(choice, readFile);
  if (!choice.shared) return { choice, kernels, threads: new OneThread(kernels) };
  try {
    return { choice, kernels, threads: await ManyThreads.start(kernels, choice.threads) };
  } catch (error) {
    if (!(error instanceof ThreadError)) throw error;
    return start(alone(choice, error.message), readFile);
  }
}

/** A compiled section: its record in memory, and a ring of slots for steps and their results. */
class Program {
  #memory;
  #threads;
  #at;
  #stepBytes;
  #result;
  #free;

  constructor({ memory }, threads, { step_bytes, result, ring }, at, slots) {
    [this.#memory, this.#threads, this.#at] = [memory, threads, at];
    [this.#stepBytes, this.#result] = [step_bytes, result];
    const places = Array.from({ length: ring }, (_, i) => slots + i * (step_bytes + result.bytes));
    this.#free = places.map((step) => ({ step, result: step + step_bytes, bytes: 0, ticket: 0 }));
  }

  /** Takes a free slot and copies the step into it. */
  take(step) {
    if (step.length !== this.#stepBytes) {
      throw new Error(`a step of ${step.length} bytes, expected ${this.#stepBytes}`);
    }
    const slot = this.#free.shift();
    if (!slot) throw new Error("every slot of the ring is in flight; read a step before the next");
    this.#memory.bytes.set(step, slot.step);
    const n = this.#memory.numbers(Uint32Array, slot.step + 4 * this.#result.word, 1)[0];
    slot.bytes = n * this.#result.each;
    return slot;
  }

  run({ step, result }) {
    return this.#threads.run(this.#at, step, result);
  }

  /** Copies the results of a slot's step and frees the slot. */
  give(slot) {
    this.#free.push(slot);
    return this.#memory.bytes.slice(slot.result, slot.result + slot.bytes);
  }
}
