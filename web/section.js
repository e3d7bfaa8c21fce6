// Builds a section on a device: buffers, pipelines and bind groups once, then steps that only replay.

const USAGE = { storage: "STORAGE", copy_src: "COPY_SRC", copy_dst: "COPY_DST", map_read: "MAP_READ" };
const BINDING = { read: "read-only-storage", write: "storage" };

/** What sections of a device share, as compiling is slow. */
export class Compiled {
  /** @type {Map<string, GPUShaderModule>} by WGSL */
  modules = new Map();
  /** @type {Map<string, Promise<GPUComputePipeline>>} by WGSL, layout and constants */
  pipelines = new Map();
}

/** One section being built. Each object is created under its own error scopes, so that an error names it. */
export class Build {
  #device;
  #section;
  #buffers;
  #compiled;
  #counters;
  #pending = [];

  /** @param {Compiled} compiled */
  constructor(device, section, buffers, compiled, counters) {
    [this.#device, this.#section, this.#buffers] = [device, section, buffers];
    [this.#compiled, this.#counters] = [compiled, counters];
  }

  /** Begins to compile the section's pipelines. `finish` of a later section reports their errors. */
  prepare() {
    this.#createPipelines(this.#createLayouts()).catch(() => {});
  }

  /** Creates buffers, pipelines (in parallel; undefined for late ones) and bind groups. */
  async finish() {
    const { groups, buffers } = this.#section;
    for (const entry of buffers) this.#createBuffer(entry);
    const shapes = this.#createLayouts();
    const compiling = this.#createPipelines(shapes, lateOf(this.#section));
    compiling.catch(() => {}); // awaited below, unless a bind group fails first
    const bound = groups.map((entry, i) => this.#createGroup(entry, i, shapes));
    return { pipelines: await compiling, groups: bound };
  }

  /** Compiles the late pipelines, too. Returns all. */
  finishLate() {
    return this.#createPipelines(this.#createLayouts());
  }

  /** The section's pipelines but the `left` ones: new ones, and those of earlier sections. */
  async #createPipelines(shapes, left = new Set()) {
    const { pipelines } = this.#section;
    const created = (entry, i) => (left.has(i) ? undefined : this.#pipeline(entry, shapes));
    const results = await Promise.allSettled(pipelines.map(created));
    // Error scopes are more specific than a pipeline's rejection, which often only reports an invalid module.
    await this.settle();
    const failed = results.findIndex(({ status }) => status === "rejected");
    if (failed >= 0) throw this.#described(`pipeline ${pipelines[failed].module}`, results[failed].reason);
    return results.map(({ value }) => value);
  }

  /** A pipeline of this or an earlier section. One that fails is forgotten, with its module. */
  #pipeline(entry, shapes) {
    const { layouts, modules } = this.#section;
    const wgsl = modules[entry.module];
    const key = JSON.stringify([wgsl, layouts[entry.layout], entry.constants]);
    const { pipelines, modules: known } = this.#compiled;
    if (pipelines.has(key)) return pipelines.get(key);
    const compiling = this.#createPipeline(entry, shapes[entry.layout], this.#module(entry.module, wgsl));
    pipelines.set(key, compiling);
    compiling.catch(() => {
      pipelines.delete(key);
      known.delete(wgsl);
    });
    return compiling;
  }

  #module(name, wgsl) {
    const { modules } = this.#compiled;
    if (!modules.has(wgsl)) {
      modules.set(wgsl, this.#create(`shader ${name}`, "createShaderModule", { code: wgsl }));
    }
    return modules.get(wgsl);
  }

  /** Calls `make`; `settle` reports a WebGPU error of the call under the name `what`. */
  guard(what, make) {
    const scopes = ["validation", "out-of-memory", "internal"];
    for (const scope of scopes) this.#device.pushErrorScope(scope);
    try {
      return make();
    } catch (error) {
      throw this.#described(what, error);
    } finally {
      for (const _ of scopes) {
        const popped = this.#device.popErrorScope();
        this.#pending.push(popped.then((error) => error && this.#described(what, error)));
      }
    }
  }

  /** Waits for all error scopes; throws the first error. */
  async settle() {
    const failures = await Promise.all(this.#pending.splice(0));
    const first = failures.find(Boolean);
    if (first) throw first;
  }

  #described(what, error) {
    // mappedAtCreation throws a RangeError if the host, not the device, is out of memory.
    const memory = error instanceof GPUOutOfMemoryError || error instanceof RangeError;
    return this.#error(what, memory ? `out of memory: ${error.message}` : error.message);
  }

  #error(what, message) {
    return new Error(`${this.#section.kind} '${this.#section.name}', ${what}: ${message}`);
  }

  #create(what, method, descriptor) {
    this.#counters.objects += 1;
    return this.guard(what, () => this.#device[method]({ label: what, ...descriptor }));
  }

  #createBuffer({ name, bytes, usage, data }) {
    this.#buffers.get(name)?.destroy();
    const flags = usage.reduce((all, word) => all | GPUBufferUsage[USAGE[word]], 0);
    const what = `buffer ${name} of ${bytes} bytes`;
    const descriptor = { size: bytes, usage: flags, mappedAtCreation: Boolean(data) };
    const buffer = this.#create(what, "createBuffer", descriptor);
    this.#buffers.set(name, buffer);
    if (!data) return;
    new Uint8Array(buffer.getMappedRange()).set(fromBase64(data));
    buffer.unmap();
  }

  #createLayouts() {
    return mapValues(this.#section.layouts, (access, key) => this.#createLayout(key, access));
  }

  #createLayout(key, access) {
    const visibility = GPUShaderStage.COMPUTE;
    const entries = access.map((word, binding) => ({ binding, visibility, buffer: { type: BINDING[word] } }));
    const group = this.#create(`layout ${key}`, "createBindGroupLayout", { entries });
    const pipeline = this.#create(`layout ${key}`, "createPipelineLayout", { bindGroupLayouts: [group] });
    return { group, pipeline };
  }

  #createPipeline({ module: name, constants }, shape, module) {
    this.#counters.objects += 1;
    const compute = { module, entryPoint: "main", constants };
    return this.#device.createComputePipelineAsync({ label: name, layout: shape.pipeline, compute });
  }

  #createGroup({ layout, bindings }, i, shapes) {
    const entries = bindings.map(([name, offset, size], binding) => {
      const buffer = this.#buffers.get(name);
      if (!buffer) throw this.#error(`bind group ${i}`, `there is no buffer '${name}'`);
      return { binding, resource: { buffer, offset, size } };
    });
    return this.#create(`bind group ${i}`, "createBindGroup", { layout: shapes[layout].group, entries });
  }
}

/** A compiled section: replays dispatches and reads results through a ring of mapped buffers. */
export class Program {
  #device;
  #late; // dispatches and bind groups of a section with early pipelines, until these are replaced
  #dispatches;
  #step;
  #results;
  #free;

  constructor(device, section, built, buffers) {
    this.#device = device;
    if (section.early?.length) this.#late = { dispatches: dispatchesOf(section), groups: built.groups };
    this.#dispatches = resolve(firstDispatches(section), built);
    this.#step = buffers.get(section.step[0]);
    this.#results = section.results.map(([name, ...rest]) => [buffers.get(name), ...rest]);
    const room = this.#results.reduce((sum, [buffer, offset]) => sum + buffer.size - offset, 0);
    const usage = GPUBufferUsage.MAP_READ | GPUBufferUsage.COPY_DST;
    const slot = { label: `ring of ${section.name}`, size: Math.max(16, room), usage };
    this.#free = Array.from({ length: section.ring }, () => device.createBuffer(slot));
  }

  /** Replaces the early pipelines, once all are compiled. */
  hasten(pipelines) {
    this.#dispatches = resolve(this.#late.dispatches, { pipelines, groups: this.#late.groups });
    this.#late = undefined;
  }

  submit(step) {
    const slot = this.#free.shift();
    if (!slot) throw new Error("every slot of the ring is in flight; read a step before the next");
    try {
      return this.#submitInto(slot, asWords(step));
    } catch (error) {
      this.#free.unshift(slot);
      throw error;
    }
  }

  #submitInto(slot, words) {
    const { queue } = this.#device;
    queue.writeBuffer(this.#step, 0, words);
    const encoder = this.#device.createCommandEncoder();
    const dispatches = encode(encoder, this.#dispatches, words);
    let bytes = 0;
    for (const [buffer, offset, word, each] of this.#results) {
      const n = words[word] * each;
      if (n) encoder.copyBufferToBuffer(buffer, offset, slot, bytes, n);
      bytes += n;
    }
    queue.submit([encoder.finish()]);
    const mapped = bytes ? slot.mapAsync(GPUMapMode.READ, 0, bytes) : Promise.resolve();
    mapped.catch(() => {}); // read() reports the error
    return { program: this, slot, bytes, mapped, dispatches };
  }

  /** Seconds of a step by the device's clock. Browsers round it, mostly to 0.1 ms. */
  async seconds(step) {
    const [querySet, times, copy] = this.#clock();
    const words = asWords(step);
    this.#device.queue.writeBuffer(this.#step, 0, words);
    const encoder = this.#device.createCommandEncoder();
    const timestampWrites = { querySet, beginningOfPassWriteIndex: 0, endOfPassWriteIndex: 1 };
    encode(encoder, this.#dispatches, words, { timestampWrites });
    encoder.resolveQuerySet(querySet, 0, 2, times, 0);
    encoder.copyBufferToBuffer(times, 0, copy, 0, copy.size);
    this.#device.queue.submit([encoder.finish()]);
    await copy.mapAsync(GPUMapMode.READ);
    const [start, end] = new BigUint64Array(copy.getMappedRange());
    for (const made of [querySet, times, copy]) made.destroy();
    return Math.max(Number(end - start), 0) / 1e9;
  }

  #clock() {
    const { QUERY_RESOLVE, COPY_SRC, COPY_DST, MAP_READ } = GPUBufferUsage;
    return [
      this.#device.createQuerySet({ type: "timestamp", count: 2 }),
      this.#device.createBuffer({ size: 16, usage: QUERY_RESOLVE | COPY_SRC }),
      this.#device.createBuffer({ size: 16, usage: COPY_DST | MAP_READ }),
    ];
  }

  /** Reads the results of a step, once per step; frees the slot even if the read fails. */
  async read({ slot, bytes, mapped }) {
    try {
      await mapped;
      return bytes ? new Uint8Array(slot.getMappedRange(0, bytes)).slice() : new Uint8Array(0);
    } finally {
      if (bytes) slot.unmap();
      this.#free.push(slot);
    }
  }
}

function dispatchesOf({ commands }) {
  return commands.map(([, ...rest]) => rest);
}

/** The dispatches, with the early pipelines in place of the late ones. */
function firstDispatches(section) {
  const dispatches = dispatchesOf(section);
  for (const [command, pipeline, grid] of section.early ?? []) {
    dispatches[command] = [pipeline, dispatches[command][1], grid];
  }
  return dispatches;
}

/** Numbers of the pipelines that early ones stand in for. */
function lateOf({ commands, early = [] }) {
  return new Set(early.map(([command]) => commands[command][1]));
}

function mapValues(record, make) {
  return Object.fromEntries(Object.entries(record).map(([key, value]) => [key, make(value, key)]));
}

/** @param {string} text @returns {Uint8Array} */
export function fromBase64(text) {
  const letters = atob(text);
  const bytes = new Uint8Array(letters.length);
  for (let i = 0; i < letters.length; i += 1) bytes[i] = letters.charCodeAt(i);
  return bytes;
}

function asWords(step) {
  const aligned = step.byteOffset % 4 ? step.slice() : step;
  return new Uint32Array(aligned.buffer, aligned.byteOffset, aligned.byteLength >> 2);
}

/** Replaces the numbers of pipelines and bind groups by the objects. */
export function resolve(dispatches, { pipelines, groups }) {
  return dispatches.map(([pipeline, group, grid]) => [pipelines[pipeline], groups[group], ...grid]);
}

/** Records dispatches into one compute pass, described by `how`; skips dispatches with an empty grid. */
export function encode(encoder, dispatches, words, how = {}) {
  const pass = encoder.beginComputePass(how);
  let count = 0;
  let last = null;
  for (const [pipeline, group, gridX, gridY, gridZ] of dispatches) {
    const [x, y, z] = [extent(gridX, words), extent(gridY, words), extent(gridZ, words)];
    if (!x || !y || !z) continue;
    if (pipeline !== last) pass.setPipeline((last = pipeline));
    pass.setBindGroup(0, group);
    pass.dispatchWorkgroups(x, y, z);
    count += 1;
  }
  pass.end();
  return count;
}

/** A grid entry: a number, or [word, per] for ceil(step[word] / per). */
function extent(entry, words) {
  return typeof entry === "number" ? entry : Math.ceil(words[entry[0]] / entry[1]);
}
