// Loads weights from a file into linear memory: as float32, as rows of their type, or packed in panels. Rows
// are read, rearranged and packed tile by tile, so that no file is in memory as a whole. If a load op picks
// distant rows, the rows between them are read, too.

import { fromBase64 } from "./section.js";
import { openSource } from "./source.js";

const TILE_BYTES = 4 << 20;
const READ_BYTES = 8 << 20;
const PANEL_ROWS = 16;
const HALF_MAX = 65504; // the largest half-precision number

/** The file's data do not match its header. */
export class ModelFormatError extends Error {
  name = "ModelFormatError";
}

/** Load ops that move values: functions of all values, the values per row, and the op's arguments. */
const MOVES = {
  transpose: (values, _, [rows, cols]) =>
    moved(values, (at) => {
      const i = at % (rows * cols);
      return at - i + (i % rows) * cols + Math.floor(i / rows);
    }),
  /** Rows (head, half, i) become (head, i, half). */
  permute_rows: (values, width, [, headDim]) => {
    const half = headDim / 2;
    return moved(values, (at) => {
      const [row, col] = [Math.floor(at / width), at % width];
      const i = row % headDim;
      return (row - i + (i % 2) * half + Math.floor(i / 2)) * width + col;
    });
  },
  rows: (values, _, [start, n, of]) => {
    const each = values.length / of;
    return values.slice(start * each, (start + n) * each);
  },
  pick: (values, _, [of, ...numbers]) => {
    const each = values.length / of;
    const picked = new values.constructor(numbers.length * each);
    numbers.forEach((number, i) => picked.set(values.subarray(number * each, (number + 1) * each), i * each));
    return picked;
  },
};

/** Load ops that change values: each gives the change of one in a row, which float32 rounds. */
const CHANGES = {
  add: (number) => (value) => value + Math.fround(number),
  neg_exp: () => (value) => -Math.exp(value),
  scale_rows: (...runs) => {
    const factors = runs.flatMap((n, i) => (i % 2 ? [] : new Array(n).fill(Math.fround(runs[i + 1]))));
    return (value, row) => value * factors[row];
  },
};

function moved(values, from) {
  return values.map((_, i) => values[from(i)]);
}

/**
 * A weight in a section. `type` and `stored` are {id, block, bytes}: GGUF type id, values and bytes of a
 * block. `parts` are [source, offset, bytes] or ["inline", base64, bytes], to be concatenated.
 * @typedef {{name: string, type: object, stored: object, shape: number[], parts: any[], ops: any[]}} Weight
 */

/** Loader of one section's weights. */
export class Loader {
  #exports;
  #memory;
  #sources;
  #counters;

  /**
   * @param {import("./wasm_module.js").Kernels} kernels
   * @param {Record<string, any>} handles handles of the sources, by name
   */
  constructor({ exports, memory }, handles, counters) {
    [this.#exports, this.#memory, this.#counters] = [exports, memory, counters];
    this.#sources = Object.fromEntries(Object.entries(handles).map(([name, it]) => [name, openSource(it)]));
    for (const source of Object.values(this.#sources)) source.catch(() => {}); // a read reports the error
  }

  /** Loads a weight in a form ("floats", "rows", "panels", "gated") to an address. */
  async load(form, weight, at) {
    const [stack, rows, cols] = weight.shape;
    const stored = { ...weight, cols, n: stack * rows, each: rowBytes(weight.stored, cols) };
    const reader = takesAll(weight) ? await this.#whole(stored) : this.#tiled(stored);
    try {
      await this[form](reader, weight, at);
    } finally {
      reader.end();
    }
  }

  async floats(reader, { shape: [stack, rows, cols] }, at) {
    for (const [start, n] of tiles(stack * rows, 4 * cols)) {
      await reader.floats(start, n, at + 4 * start * cols);
    }
  }

  async rows(reader, { type, shape: [stack, rows, cols] }, at) {
    const each = rowBytes(type, cols);
    for (const [start, n] of tiles(stack * rows, 4 * cols)) {
      await reader.coded(start, n, at + start * each);
    }
  }

  /** Packs each matrix into panels; `turns` parts of its rows alternate panel by panel. */
  async panels(reader, { type, shape: [stack, allRows, cols] }, at, turns = 1) {
    const rows = allRows / turns;
    const bytesOf = (n) => Number(this.#exports.cam_panel_bytes(0, type.id, n, cols));
    for (let part = 0; part < stack * turns; part += 1) {
      const turn = part % turns;
      const first = at + (part - turn) * bytesOf(rows) + turn * bytesOf(1);
      for (const [start, n] of tiles(rows, 4 * cols, PANEL_ROWS)) {
        const to = first + turns * bytesOf(start);
        await this.#staged(n * rowBytes(type, cols), async (coded) => {
          await reader.coded(part * rows + start, n, coded);
          this.#exports.cam_pack(0, type.id, coded, 0, n, cols, 0, Math.ceil(n / PANEL_ROWS), turns, to);
        });
      }
    }
  }

  async gated(reader, weight, at) {
    await this.panels(reader, weight, at, 2);
  }

  /** Reader that reads rows on demand. */
  #tiled(stored) {
    const order = orderOf(stored);
    const isAsStored = stored.type.id === stored.stored.id && !changes(stored).length;
    const gather = (start, n, to) => this.#gather(stored, order, start, n, to);
    const floats = (start, n, to) =>
      this.#staged(n * stored.each, async (raw) => {
        await gather(start, n, raw);
        this.#decode(stored, raw, to, n * stored.cols, start);
      });
    const coded = (start, n, to) =>
      this.#staged(4 * n * stored.cols, async (values) => {
        await floats(start, n, values);
        this.#encode(stored, values, to, n * stored.cols);
      });
    return { floats, coded: isAsStored ? gather : coded, end: () => {} };
  }

  /** Reader for a weight whose rows each depend on the whole stored matrix: decodes the matrix at once. */
  async #whole(stored) {
    const bytes = stored.parts.reduce((sum, [, , n]) => sum + n, 0);
    const n = (bytes / stored.stored.bytes) * stored.stored.block;
    const values = this.#memory.takeDirty(4 * n);
    const end = () => this.#memory.give(values, 4 * n);
    try {
      await this.#staged(bytes, async (raw) => {
        await this.#read(stored, 0, bytes, raw);
        this.#decode(stored, raw, values, n);
      });
    } catch (error) {
      end();
      throw error;
    }
    const made = applied(stored.ops, this.#memory.numbers(Float32Array, values, n).slice(), stored.shape);
    this.#memory.numbers(Float32Array, values, n).set(made);
    const from = (start) => values + 4 * start * stored.cols;
    return {
      floats: async (start, rows, to) =>
        void this.#memory.bytes.copyWithin(to, from(start), from(start + rows)),
      coded: async (start, rows, to) => this.#encode(stored, from(start), to, rows * stored.cols),
      end,
    };
  }

  /** Reads rows of the weight in the stored type, in the order of the load ops. */
  async #gather(stored, order, start, n, to) {
    const { each } = stored;
    if (!order) return this.#read(stored, start * each, n * each, to);
    const wanted = order.subarray(start, start + n);
    const first = wanted.reduce((low, i) => Math.min(low, i));
    const room = (wanted.reduce((high, i) => Math.max(high, i)) + 1 - first) * each;
    return this.#staged(room, async (range) => {
      await this.#read(stored, first * each, room, range);
      const { bytes } = this.#memory;
      wanted.forEach((row, i) => {
        const from = range + (row - first) * each;
        bytes.copyWithin(to + i * each, from, from + each);
      });
    });
  }

  /** Reads bytes of the concatenated parts. */
  async #read({ parts }, start, n, to) {
    let at = 0;
    for (const part of parts) {
      const [low, high] = [Math.max(start, at), Math.min(start + n, at + part[2])];
      for (let from = low; from < high; from += READ_BYTES) {
        const data = await this.#piece(part, from - at, Math.min(READ_BYTES, high - from));
        this.#memory.bytes.set(data, to + from - start);
        this.#counters.bytesLoaded += data.length;
      }
      at += part[2];
    }
  }

  async #piece([source, offset], start, n) {
    if (source === "inline") return fromBase64(offset).subarray(start, start + n);
    if (!(source in this.#sources)) throw new Error(`there is no source '${source}'`);
    return (await this.#sources[source]).read(offset + start, n);
  }

  #decode(stored, from, to, n, firstRow = 0) {
    const type = stored.stored;
    if (this.#exports.cam_decode(0, type.id, from, to, BigInt(n))) throw noCodec(stored, type);
    const values = this.#memory.numbers(Float32Array, to, n);
    for (const change of changes(stored)) {
      values.forEach((value, i) => (values[i] = change(value, firstRow + Math.floor(i / stored.cols))));
    }
  }

  #encode(stored, from, to, n) {
    const { type } = stored;
    if (this.#exports.cam_encode(0, type.id, from, to, BigInt(n))) throw noCodec(stored, type);
    const values = this.#memory.numbers(Float32Array, from, n);
    const most = values.reduce((top, value) => Math.max(top, Math.abs(value)), 0);
    if (!(most > HALF_MAX)) return; // also the limit of scales
    this.#exports.cam_decode(0, type.id, to, from, BigInt(n));
    if (values.every(Number.isFinite)) return;
    const message = `${stored.name}: values up to ${most} overflow its type; convert to bf16 or f32`;
    throw new ModelFormatError(message);
  }

  /** Calls `work` with the address of a temporary buffer. */
  async #staged(bytes, work) {
    const at = this.#memory.takeDirty(bytes);
    try {
      return await work(at);
    } finally {
      this.#memory.give(at, bytes);
    }
  }
}

function noCodec({ name }, { id }) {
  return new ModelFormatError(`${name}: the kernels have no codec for GGUF type ${id}`);
}

function rowBytes({ block, bytes }, cols) {
  return (cols / block) * bytes;
}

/** Tiles [start, n] of about TILE_BYTES; n is a multiple of `step` except in the last tile. */
function* tiles(rows, each, step = 1) {
  const height = Math.max(Math.floor(TILE_BYTES / each / step), 1) * step;
  for (let start = 0; start < rows; start += height) yield [start, Math.min(height, rows - start)];
}

function changes({ ops }) {
  return ops.filter(([name]) => name in CHANGES).map(([name, ...args]) => CHANGES[name](...args));
}

/** True if values move across rows: in a transposed matrix, and in a vector, which is one row. */
function takesAll({ ops, shape: [stack, rows] }) {
  const moves = ops.filter(([name]) => name in MOVES);
  return moves.some(([name]) => name === "transpose") || (stack * rows === 1 && moves.length > 0);
}

function applied(ops, values, [stack, rows, cols]) {
  const width = stack * rows > 1 ? cols : 1;
  return ops.reduce((made, [name, ...args]) => MOVES[name]?.(made, width, args) ?? made, values);
}

/** Index of the stored row for each row of a weight; null if no load op moves rows. */
function orderOf({ parts, ops, each }) {
  if (!ops.some(([name]) => name in MOVES)) return null;
  const n = parts.reduce((sum, [, , bytes]) => sum + bytes, 0) / each;
  return applied(ops, Uint32Array.from({ length: n }, (_, i) => i), [1, 1, 1]);
}
