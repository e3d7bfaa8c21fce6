// Byte ranges of a model file: from a URL, a File or Blob, or an OPFS file handle; of a model in parts, from
// an array of these. One request fetches a chunk with several tensors: a small model takes one request, and
// a large model is never in memory as a whole.

import { contentRange, pieces } from "./http.js";

const CHUNK_BYTES = 8 << 20;
const CHUNKS_KEPT = 4;

/**
 * @callback Progress
 * @param {number} done bytes received
 * @param {number} total bytes of the whole file
 */

/** @typedef {string | Blob | FileSystemFileHandle | Source} Handle */

/**
 * Opens a handle. A Source is returned unchanged. Of a model in parts, the result is the part of the first
 * name, which finds the others by `beside`.
 * @param {Handle | Handle[]} handle
 * @param {Progress} [progress] called as bytes arrive over the network
 * @returns {Promise<Source>}
 */
export async function openSource(handle, progress = () => {}) {
  if (handle instanceof Source) return handle;
  if (Array.isArray(handle)) return openParts(handle, progress);
  if (typeof handle === "string") return openUrl(new URL(handle, self.location.href).href, progress);
  const file = handle instanceof Blob ? handle : await handle.getFile();
  return fromBlob(file, file.name ?? "model");
}

/** A named sequence of bytes. `read` returns exactly the requested bytes or throws. */
export class Source {
  #readRange;
  #chunkBytes;
  #openBeside;
  /** @type {Map<number, Promise<Uint8Array>>} chunks by number, in order of last use */
  #chunks = new Map();

  /**
   * @param {string} name
   * @param {number} size
   * @param {(start: number, end: number) => Promise<Uint8Array>} readRange
   * @param {number} chunkBytes 0 reads each range separately
   * @param {(name: string) => Promise<Source>} [openBeside] opens another part of the model
   */
  constructor(name, size, readRange, chunkBytes = 0, openBeside = refuseBeside) {
    this.name = name;
    this.size = size;
    this.#readRange = readRange;
    this.#chunkBytes = chunkBytes;
    this.#openBeside = openBeside;
  }

  /** The same bytes with another way to the other parts. */
  among(openBeside) {
    const readRange = (start, end) => this.read(start, end - start);
    return new Source(this.name, this.size, readRange, 0, openBeside);
  }

  /**
   * Opens another part of the model by its file's name.
   * @param {string} name
   * @returns {Promise<Source>}
   */
  beside(name) {
    return this.#openBeside(name);
  }

  /**
   * @param {number} offset
   * @param {number} length
   * @returns {Promise<Uint8Array>} may share memory with other results: read-only
   */
  async read(offset, length) {
    const end = offset + length;
    if (!(offset >= 0 && length >= 0 && end <= this.size)) {
      throw new Error(`${this.name} has ${this.size} bytes; bytes ${offset} to ${end} were requested`);
    }
    if (length === 0) return new Uint8Array(0);
    if (!this.#chunkBytes) return this.#readRange(offset, end);
    return this.#readChunks(offset, end);
  }

  async #readChunks(offset, end) {
    const first = Math.floor(offset / this.#chunkBytes);
    const last = Math.floor((end - 1) / this.#chunkBytes);
    if (first === last) {
      const at = first * this.#chunkBytes;
      return (await this.#chunk(first)).subarray(offset - at, end - at);
    }
    const joined = new Uint8Array(end - offset);
    for (let number = first; number <= last; number += 1) {
      const at = number * this.#chunkBytes;
      const part = (await this.#chunk(number)).subarray(Math.max(offset - at, 0), end - at);
      joined.set(part, Math.max(at - offset, 0));
    }
    return joined;
  }

  #chunk(number) {
    const start = number * this.#chunkBytes;
    const chunk = this.#chunks.get(number)
      ?? this.#readRange(start, Math.min(start + this.#chunkBytes, this.size));
    this.keep(number, chunk);
    chunk.catch(() => this.#chunks.delete(number));
    return chunk;
  }

  /** Adds a chunk as the most recently used one; evicts the least recently used chunk beyond CHUNKS_KEPT. */
  keep(number, chunk) {
    this.#chunks.delete(number);
    this.#chunks.set(number, chunk);
    if (this.#chunks.size > CHUNKS_KEPT) this.#chunks.delete(this.#chunks.keys().next().value);
  }
}

async function refuseBeside(name) {
  throw new Error(`the model has several parts, and ${name} was not given; open all parts together`);
}

/**
 * Opens handles; progress is of all.
 * @param {(Handle | Handle[])[]} handles
 * @param {Progress} [progress]
 * @returns {Promise<Source[]>}
 */
export function openSources(handles, progress = () => {}) {
  const counts = handles.map(() => [0, 0]);
  const count = (i) => (done, total) => {
    counts[i] = [done, total];
    progress(...[0, 1].map((at) => counts.reduce((sum, each) => sum + each[at], 0)));
  };
  return Promise.all(handles.map((handle, i) => openSource(handle, count(i))));
}

async function openParts(handles, progress) {
  const opened = await openSources(handles, progress);
  const parts = new Map(opened.map((source) => [source.name, source]));
  const [first] = [...parts.keys()].sort();
  return parts.get(first).among(async (name) => parts.get(name) ?? refuseBeside(name));
}

function fromBlob(blob, name, openBeside) {
  const readRange = async (start, end) => new Uint8Array(await blob.slice(start, end).arrayBuffer());
  return new Source(name, blob.size, readRange, 0, openBeside);
}

/** Opens a URL. A server without support for ranges answers the first request with the whole file. */
async function openUrl(url, progress) {
  const name = new URL(url).pathname.split("/").at(-1);
  const beside = (other) => openUrl(new URL(encodeURIComponent(other), url).href, progress);
  const response = await request(url, 0, CHUNK_BYTES);
  if (response.status === 200) return fromBlob(await wholeBody(response, progress), name, beside);
  const { start, end, total } = placeOf(url, response);
  if (start !== 0 || end !== Math.min(CHUNK_BYTES, total)) throw wrongRange(url, response, 0, CHUNK_BYTES);
  let done = 0;
  const count = (n) => progress((done += n), total);
  const validator = response.headers.get("etag");
  const readRange = (from, to) => fetchRange(url, from, to, { total, validator, count });
  const source = new Source(name, total, readRange, CHUNK_BYTES, beside);
  const chunk = await readBody(response, end, count);
  source.keep(0, Promise.resolve(chunk));
  return source;
}

async function fetchRange(url, from, to, { total, validator, count }) {
  // no-store: Chromium's cache puts the stored etag on parts of a file that has changed.
  const response = await request(url, from, to, "no-store");
  if (response.headers.get("etag") !== validator) {
    throw new Error(`${url} changed on the server while it was being read; reload the page`);
  }
  const range = response.status === 206 ? placeOf(url, response) : {};
  const isRight = range.start === from && range.end === to && range.total === total;
  if (!isRight) throw wrongRange(url, response, from, to);
  return readBody(response, to - from, count);
}

async function request(url, from, to, cache = "default") {
  const headers = { Range: `bytes=${from}-${to - 1}` };
  const response = await fetch(url, { cache, headers }).catch((error) => {
    throw new Error(`${url}: no answer from the server (${error.message})`);
  });
  if (response.status === 206 || response.status === 200) return response;
  throw new Error(`${url}: the server answered ${response.status} ${response.statusText}`.trim());
}

function placeOf(url, response) {
  const place = contentRange(response);
  if (place) return place;
  const text = response.headers.get("content-range") ?? "";
  throw new Error(`${url}: the server sent a part without a valid content-range: '${text}'`);
}

function wrongRange(url, response, from, to) {
  const got = response.headers.get("content-range") ?? `status ${response.status}`;
  return new Error(`${url}: bytes ${from} to ${to} were requested, the server sent ${got}`);
}

/** Reads exactly `length` bytes of a body and counts them as they arrive. */
async function readBody(response, length, count) {
  const bytes = new Uint8Array(length);
  let at = 0;
  for await (const piece of pieces(response)) {
    if (at + piece.length > length) throw new Error(`${response.url}: more than ${length} bytes arrived`);
    bytes.set(piece, at);
    at += piece.length;
    count(piece.length);
  }
  if (at !== length) throw cutShort(response, at, length);
  return bytes;
}

function cutShort(response, done, total) {
  return new Error(`${response.url}: the connection ended after ${done} of ${total} bytes; try again`);
}

async function wholeBody(response, progress) {
  const total = response.headers.has("content-encoding") ? 0 : Number(response.headers.get("content-length"));
  const parts = [];
  let done = 0;
  for await (const piece of pieces(response)) {
    parts.push(piece);
    progress((done += piece.length), Math.max(done, total));
  }
  if (total && done !== total) throw cutShort(response, done, total);
  return new Blob(parts);
}
