// A WebAssembly memory in blocks of whole cache lines, which begin zeroed. It grows as it must.

const LINE_BYTES = 64;
const PAGE_BYTES = 1 << 16;

/** There is no more memory, or no more that a page may have. */
export class OutOfMemoryError extends Error {
  name = "OutOfMemoryError";
}

export class LinearMemory {
  #memory;
  #bytes = new Uint8Array(0);
  #end; // of what was ever taken; beyond it all is zero
  /** @type {{at: number, bytes: number}[]} blocks given back, by address; no two touch */
  #free = [];

  /**
   * @param {WebAssembly.Memory} memory
   * @param {number} start where the module's own data and stack end
   */
  constructor(memory, start) {
    this.#memory = memory;
    this.#end = wholeLines(start);
  }

  /** All bytes. Ask for it anew after whatever may take a block: growth makes it another array. */
  get bytes() {
    if (this.#bytes.buffer !== this.#memory.buffer) this.#bytes = new Uint8Array(this.#memory.buffer);
    return this.#bytes;
  }

  /** The same as numbers of `Type`, from an address on. */
  numbers(Type, at, n) {
    return new Type(this.#memory.buffer, at, n);
  }

  /** The address of so many zero bytes. OutOfMemoryError if they cannot be had. */
  take(bytes) {
    const end = this.#end;
    const at = this.takeDirty(bytes);
    this.bytes.fill(0, at, Math.max(at, Math.min(at + bytes, end)));
    return at;
  }

  /** The same, but the bytes may be anything. */
  takeDirty(bytes) {
    const room = wholeLines(bytes);
    const found = this.#free.findIndex((block) => block.bytes >= room);
    return found < 0 ? this.#extend(room) : this.#carve(found, room);
  }

  /** Takes a block back; it must be one that was taken, of the same size. */
  give(at, bytes) {
    const room = wholeLines(bytes);
    const next = this.#free.findIndex((block) => block.at > at);
    const place = next < 0 ? this.#free.length : next;
    this.#free.splice(place, 0, { at, bytes: room });
    this.#join(place);
    if (place) this.#join(place - 1);
  }

  #carve(index, room) {
    const block = this.#free[index];
    const { at } = block;
    block.at += room;
    block.bytes -= room;
    if (!block.bytes) this.#free.splice(index, 1);
    return at;
  }

  #extend(room) {
    const last = this.#free.at(-1);
    const isAtEnd = last && last.at + last.bytes === this.#end;
    const at = isAtEnd ? last.at : this.#end;
    this.#grow(at + room);
    if (isAtEnd) this.#free.pop();
    this.#end = at + room;
    return at;
  }

  #grow(end) {
    const missing = end - this.#memory.buffer.byteLength;
    if (missing <= 0) return;
    try {
      this.#memory.grow(Math.ceil(missing / PAGE_BYTES));
    } catch {
      throw new OutOfMemoryError(
        `out of memory: ${end} bytes were asked for in all; WebAssembly has 4 GiB at most, and here not more `
        + `than ${this.#memory.buffer.byteLength} bytes and some`,
      );
    }
  }

  /** Joins a free block with the one after it, if they touch. */
  #join(index) {
    const [block, next] = this.#free.slice(index, index + 2);
    if (!next || block.at + block.bytes !== next.at) return;
    block.bytes += next.bytes;
    this.#free.splice(index + 1, 1);
  }
}

function wholeLines(bytes) {
  return Math.max(Math.ceil(bytes / LINE_BYTES), 1) * LINE_BYTES;
}
