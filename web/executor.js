// Executes tapes on WebGPU. Its input is sections (core/camelid/backends/webgpu/tape.py); it has no model
// code. The interface equals host_python.WgpuHost, so the same lowering drives both.

import { TIMESTAMPS, openDevice } from "./device.js";
import { note, taken } from "./remembered.js";
import { Build, Compiled, Program, encode, fromBase64, resolve } from "./section.js";
import { openSource } from "./source.js";

// writeBuffer copies into shared memory, which is freed only after the device has executed the copy.
const UNFINISHED_UPLOAD_BYTES = 64 << 20;
// Late pipelines are compiled after as long without a step: beside an answer they would slow it down.
const IDLE_MS = 500;

/** The device is lost; its buffers and programs cannot be used again. */
export class DeviceLostError extends Error {
  name = "DeviceLostError";
}

/**
 * One WebGPU device. `load`, `allocate` and `compile` run one after the other; `run`, `readState` and
 * `writeState` enter the device's queue at once.
 */
export class Executor {
  #gpu;
  /** @type {GPUDevice | null} */
  #device = null;
  /** @type {Map<string, GPUBuffer>} */
  #buffers = new Map();
  #compiled = new Compiled();
  /** @type {Program[]} */
  #programs = [];
  #tickets = new Map(); // readable steps, by ticket
  #holders = new Map(); // last ticket of each ring slot
  #lastTicket = 0;
  #late = []; // work for an idle moment
  #idle; // its timer
  #building = Promise.resolve();
  #fault = null; // first error outside any error scope; the next call throws it

  /** @param {GPU | undefined} gpu */
  constructor(gpu = globalThis.navigator?.gpu) {
    this.#gpu = gpu;
    /** Cheap counters; they never decrease, except inFlight. */
    this.counters = {
      objects: 0,
      runs: 0,
      runMs: 0,
      dispatches: 0,
      inFlight: 0,
      maxInFlight: 0,
      bytesUploaded: 0,
      bytesReadBack: 0,
    };
  }

  /**
   * Opens a device of the adapter whose name contains `spec.adapter`.
   * @param {{adapter?: string, api?: string, limits?: Record<string, number>}} spec a limit of 0 is the
   *   adapter's
   * @returns {Promise<{adapter: Record<string, string>, limits: Record<string, number>, language: string[]}>}
   */
  async open(spec) {
    if (spec.api) throw new Error(`'${spec.api}' cannot be selected: the browser chooses the graphics API`);
    note({ spec });
    const { device, compiled, ...facts } = (await taken(spec)) ?? (await openDevice(this.#gpu, spec));
    this.#device = device;
    this.#compiled = compiled ?? new Compiled(); // those of an old device cannot be used
    device.lost.then(({ reason, message }) => {
      if (this.#device !== device) return; // closed, or opened again
      this.#fault = new DeviceLostError(`the device was lost (${reason}): ${message || "no reason given"}`);
    });
    device.addEventListener("uncapturederror", ({ error }) => {
      if (this.#device === device) this.#fault ??= new Error(error.message);
    });
    return facts;
  }

  /**
   * Executes uploads and dispatches in order.
   * @param {object} section
   * @param {Record<string, string | Blob | FileSystemFileHandle | import("./source.js").Source>} sources
   */
  load(section, sources) {
    return this.#build(section, async (build) => {
      const opened = {};
      for (const [name, handle] of Object.entries(sources)) opened[name] = await openSource(handle);
      const built = await build.finish();
      await this.#execute(section.commands, built, opened, build);
      for (const { name, temporary } of section.buffers) if (temporary) this.#destroy(name);
    });
  }

  /** Creates a section's buffers, zeroed, after freeing those that it drops. Programs of other buffers stay valid. */
  allocate(section) {
    return this.#build(section, (build) => {
      for (const name of section.dropped ?? []) this.#destroy(name);
      return build.finish();
    });
  }

  /**
   * Begins to compile the pipelines of a section before its buffers exist. `compile` reports their errors.
   * @param {{layouts: object, modules: object, pipelines: object[]}} section
   */
  prepare(section) {
    this.#check();
    note({ section });
    this.#open(section).prepare();
  }

  /**
   * Creates all objects that a program's steps need.
   * @returns {Promise<number>} the program's number
   */
  compile(section) {
    return this.#build(section, async (build) => {
      const built = await build.finish();
      const program = build.guard("ring", () => new Program(this.#device, section, built, this.#buffers));
      this.counters.objects += section.ring;
      if (section.early?.length) this.#late.push(() => this.#hasten(program, section));
      this.#whenIdle();
      return this.#programs.push(program);
    });
  }

  /**
   * Submits one step. It never waits for the device, and creates no object but a command encoder.
   * @param {number} program
   * @param {Uint8Array} step
   * @returns {number} a ticket, readable until a later step reuses its ring slot
   */
  run(program, step) {
    const start = performance.now();
    this.#check();
    const inFlight = this.#programs[program - 1].submit(step);
    const ticket = (this.#lastTicket += 1);
    this.#tickets.delete(this.#holders.get(inFlight.slot));
    this.#holders.set(inFlight.slot, ticket);
    this.#tickets.set(ticket, { inFlight, reading: null });
    const counters = this.counters;
    counters.runs += 1;
    counters.dispatches += inFlight.dispatches;
    counters.inFlight += 1;
    counters.maxInFlight = Math.max(counters.maxInFlight, counters.inFlight);
    this.#whenIdle();
    counters.runMs += performance.now() - start;
    return ticket;
  }

  /**
   * Runs a step between two timestamps of the device; its results are lost.
   * @param {number} program
   * @param {Uint8Array} step
   * @returns {Promise<number>} seconds, -1 on a device without timestamps
   */
  async seconds(program, step) {
    this.#check();
    if (!this.#device.features.has(TIMESTAMPS)) return -1;
    return this.#orFault(this.#programs[program - 1].seconds(step));
  }

  /**
   * The step's results. A cancelled read can be repeated and returns the same bytes.
   * @param {number} ticket
   * @returns {Promise<Uint8Array>}
   */
  async read(ticket) {
    const entry = this.#tickets.get(ticket);
    if (!entry) throw new Error(`there is no step in flight with ticket ${ticket}`);
    entry.reading ??= this.#readOnce(entry.inFlight);
    return entry.reading;
  }

  async #readOnce(inFlight) {
    this.counters.inFlight -= 1;
    const bytes = await this.#orFault(inFlight.program.read(inFlight));
    this.#whenIdle();
    this.counters.bytesReadBack += bytes.length;
    return bytes;
  }

  /**
   * @param {string} buffer
   * @param {number} offset
   * @param {number} bytes
   * @returns {Promise<Uint8Array>} the bytes after all steps submitted so far
   */
  async readState(buffer, offset, bytes) {
    this.#check();
    const usage = GPUBufferUsage.MAP_READ | GPUBufferUsage.COPY_DST;
    const copy = this.#device.createBuffer({ label: "read state", size: bytes, usage });
    this.counters.objects += 1;
    const encoder = this.#device.createCommandEncoder();
    encoder.copyBufferToBuffer(this.#buffer(buffer), offset, copy, 0, bytes);
    this.#device.queue.submit([encoder.finish()]);
    await this.#orFault(copy.mapAsync(GPUMapMode.READ));
    const data = new Uint8Array(copy.getMappedRange()).slice();
    copy.destroy();
    return data;
  }

  /**
   * @param {string} buffer
   * @param {number} offset
   * @param {Uint8Array} data a multiple of four bytes
   */
  async writeState(buffer, offset, data) {
    this.#check();
    this.#device.queue.writeBuffer(this.#buffer(buffer), offset, data);
  }

  /** @returns {Record<string, number>} bytes of every live buffer by name */
  memory() {
    return Object.fromEntries([...this.#buffers].map(([name, buffer]) => [name, buffer.size]));
  }

  /** Frees all objects. The executor can be opened again. */
  async close() {
    const device = this.#device;
    this.#device = null;
    this.#buffers.clear();
    this.#compiled = new Compiled();
    this.#programs = [];
    this.#late = [];
    this.#tickets.clear();
    this.#holders.clear();
    this.counters.inFlight = 0;
    this.#fault = null;
    device?.destroy();
    await device?.lost;
    await this.#building; // a build in progress fails, and leaves no buffer
  }

  #check() {
    if (this.#fault) throw this.#fault;
    if (!this.#device) throw new Error("no device is open");
  }

  /** Awaits a promise; if the device failed, throws the device's error instead of the promise's. */
  async #orFault(promise) {
    try {
      const value = await promise;
      if (this.#fault) throw this.#fault;
      return value;
    } catch (error) {
      await this.#settled();
      throw this.#fault ?? error;
    }
  }

  /** Waits briefly for `device.lost`, since a failing map is often reported before it. */
  async #settled() {
    if (this.#device) await Promise.race([this.#device.lost, new Promise((next) => setTimeout(next, 20))]);
  }

  #buffer(name) {
    const buffer = this.#buffers.get(name);
    if (!buffer) throw new Error(`there is no buffer '${name}'`);
    return buffer;
  }

  #destroy(name) {
    this.#buffers.get(name)?.destroy();
    this.#buffers.delete(name);
  }

  #open(section) {
    return new Build(this.#device, section, this.#buffers, this.#compiled, this.counters);
  }

  /** Runs `work` after all earlier builds; destroys the section's buffers if it fails. */
  #build(section, work) {
    const result = this.#building.then(async () => {
      this.#check();
      const build = this.#open(section);
      try {
        const value = await work(build);
        await build.settle();
        this.#check();
        return value;
      } catch (error) {
        await this.#settled();
        for (const { name } of section.buffers) this.#destroy(name);
        throw this.#fault ?? error;
      }
    });
    this.#building = result.catch(() => {});
    return result;
  }

  #whenIdle() {
    clearTimeout(this.#idle);
    if (!this.#late.length || this.counters.inFlight) return;
    this.#idle = setTimeout(() => this.#late.splice(0).forEach((work) => work()), IDLE_MS);
  }

  /** Compiles a program's late pipelines; if one fails, the program keeps its early ones. */
  async #hasten(program, section) {
    const device = this.#device;
    try {
      program.hasten(await this.#open(section).finishLate());
    } catch ({ message }) {
      if (this.#device === device && !this.#fault) console.warn(`steps stay slower: ${message}`);
    }
  }

  async #execute(commands, built, sources, build) {
    let unfinished = 0;
    for (const [name, ...rest] of commands) {
      this.#check();
      if (name === "upload") unfinished += await this.#upload(sources, ...rest, build);
      else if (name === "words") this.#words(...rest);
      else this.#dispatch(rest, built, build);
      if (unfinished > UNFINISHED_UPLOAD_BYTES) {
        await this.#device.queue.onSubmittedWorkDone();
        unfinished = 0;
      }
    }
  }

  async #upload(sources, source, offset, bytes, buffer, at, build) {
    const data = Array.isArray(source)
      ? fromBase64(source[1]).subarray(offset, offset + bytes)
      : await readSource(sources, source, offset, bytes);
    const tail = bytes % 4;
    const target = this.#buffer(buffer);
    const { queue } = this.#device;
    build.guard(`upload into ${buffer}`, () => {
      if (bytes > tail) queue.writeBuffer(target, at, data, 0, bytes - tail);
      if (!tail) return;
      const word = new Uint8Array(4);
      word.set(data.subarray(bytes - tail));
      queue.writeBuffer(target, at + bytes - tail, word);
    });
    this.counters.bytesUploaded += bytes;
    return bytes;
  }

  #words(buffer, at, words) {
    this.#device.queue.writeBuffer(this.#buffer(buffer), at, new Uint32Array(words));
  }

  #dispatch(dispatch, built, build) {
    const encoder = this.#device.createCommandEncoder();
    const label = built.pipelines[dispatch[0]].label;
    build.guard(`dispatch of ${label}`, () => {
      encode(encoder, resolve([dispatch], built), []);
      this.#device.queue.submit([encoder.finish()]);
    });
    this.counters.dispatches += 1;
  }
}

async function readSource(sources, name, offset, bytes) {
  if (sources[name]) return sources[name].read(offset, bytes);
  throw new Error(`there is no source '${name}'; known: ${Object.keys(sources).join(", ")}`);
}
