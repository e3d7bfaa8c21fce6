// Allocator for a WebAssembly memory: zeroed blocks of whole cache lines. The memory grows on demand.

const LINE_BYTES = 64;
const PAGE_BYTES = 1 << 16;

/** The system, or the browser's limit, allows no more memory. */
export class OutOfMemoryError extends Error {
  name = "OutOfMemoryError";
}

export class LinearMemory {
  #memory;
  #bytes = new Uint8Array(0);
  #end; // end of all allocations so far; bytes beyond are zero
  /** @type {{at: number, bytes: number}[]} free blocks, by address; no two are adjacent */
  #free = [];

  /**
   * @param {WebAssembly.Memory} memory
   * @param {number} start end of the module's own data and stack
   */
  constructor(memory, start) {
    this.#memory = memory;
    this.#end = wholeLines(start);
  }

  /** All bytes. Read this property again after each allocation: growth replaces the array. */
  get bytes() {
    if (this.#bytes.buffer !== this.#memory.buffer) this.#bytes = new Uint8Array(this.#memory.buffer);
    return this.#bytes;
  }

  /** View of n numbers of the typed array `Type`, from an address on. */
  numbers(Type, at, n) {
    return new Type(this.#memory.buffer, at, n);
  }

  /** Allocates zeroed bytes; returns their address. Throws OutOfMemoryError. */
  take(bytes) {
    const end = this.#end;
    const at = this.takeDirty(bytes);
    this.bytes.fill(0, at, Math.max(at, Math.min(at + bytes, end)));
    return at;
  }

  /** Allocates bytes without zeroing them. */
  takeDirty(bytes) {
    const room = wholeLines(bytes);
    const found = this.#free.findIndex((block) => block.bytes >= room);
    return found < 0 ? this.#extend(room) : this.#carve(found, room);
  }

  /** Frees an allocated block; `bytes` must be the allocated size. */
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
        `out of memory: ${end} bytes were requested in all; WebAssembly has at most 4 GiB, and growth from `
        + `${this.#memory.buffer.byteLength} bytes failed`,
      );
    }
  }

  /** Joins a free block with the next one if they are adjacent. */
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
