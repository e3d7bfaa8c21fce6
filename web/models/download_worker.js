// Worker that downloads one model to the store, under a lock that all tabs share: a tab that waits for the
// lock finds the model complete, or goes on where the other stopped. In: start, stop. Out: done, error.

import "../vendor/hash-wasm/sha256.umd.min.js";
import { line, sums } from "./journal.js";
import { openDownload } from "./ranges.js";
import { JOURNAL, checkRoom, lockName, models, stateOf } from "./store.js";
import { ModelError } from "./texts.js";

const PROGRESS_MS = 100;
const SPOILT = ["changed", "hash"]; // errors after which the stored bytes are of no use
const NO_ROOM = ["quota", "full", "full-unsized"];
const FULL = ["QuotaExceededError", "NS_ERROR_FILE_NO_DEVICE_SPACE"]; // the second: Firefox's truncate
const stopping = new AbortController();
const channel = new BroadcastChannel("camelid-models");

self.onmessage = async ({ data }) => {
  if (data.kind === "stop") return stopping.abort();
  try {
    await share(data.model);
    self.postMessage({ kind: "done" });
  } catch (error) {
    const { key, values } = error instanceof ModelError ? error : unforeseen(error);
    self.postMessage({ kind: "error", isStopped: stopping.signal.aborted, key, values });
  }
};

function unforeseen(error) {
  return { key: "unforeseen", values: { message: `${error}` } };
}

function share(model) {
  const { signal } = stopping;
  return navigator.locks.request(lockName(model.key), { signal }, () => new Storing(model).run());
}

/** The storing of one model: its open files, its journal and what is stored so far. */
class Storing {
  #model;
  #folder;
  #parts = [];
  #journal;
  #arriving = 0; // bytes of chunks that are not stored yet
  #reportedAt = 0;

  constructor(model) {
    this.#model = model;
  }

  async run() {
    this.#folder = await (await models()).getDirectoryHandle(this.#model.key, { create: true });
    const state = await stateOf(this.#folder);
    if (state?.isComplete) return;
    this.#journal = await opened(this.#folder, JOURNAL);
    try {
      this.#parts = (state ?? (await this.#begin())).parts;
      for (const [i, file] of this.#model.files.entries()) await this.#store(i, file);
    } catch (error) {
      throw await this.#judged(error);
    } finally {
      this.#journal.close();
    }
  }

  /** The error for the visitor; deletes bytes that no later download can use. */
  async #judged(error) {
    const told = FULL.includes(error.name) ? this.#full() : error;
    try {
      const { done } = sums((await stateOf(this.#folder))?.parts ?? []);
      if (SPOILT.includes(told.key) || (NO_ROOM.includes(told.key) && !done)) await this.#forget();
    } catch {
      // The storage that caused the error may refuse this, too; the dialog lists what is left.
    }
    return told;
  }

  /** Starts the journal anew. */
  async #begin() {
    this.#journal.truncate(0);
    this.#note({ model: this.#model });
    return stateOf(this.#folder);
  }

  /** Marks that nothing is stored, so that the next download starts from the beginning. */
  async #forget() {
    this.#journal.truncate(0);
    this.#journal.flush();
    for (const { name } of this.#model.files) await this.#folder.removeEntry(name).catch(() => {});
  }

  async #store(i, file) {
    const part = this.#parts[i];
    if (part.digest !== null) return;
    const data = await opened(this.#folder, file.name);
    try {
      const hasher = await globalThis.hashwasm.createSHA256();
      await this.#resume(part, data, hasher);
      if (part.done !== part.total) await this.#fetch(i, file, data, hasher);
      this.#finish(i, file, hasher.digest());
    } finally {
      data.close();
    }
  }

  /** Restores the hash of the stored bytes. */
  async #resume(part, data, hasher) {
    if (part.done > data.getSize()) part.done = 0;
    if (part.done) hasher.load(Uint8Array.from(part.hash));
    else hasher.init();
  }

  async #fetch(i, file, data, hasher) {
    const part = this.#parts[i];
    const onBytes = (n) => ((this.#arriving += n), this.#report());
    const ending = new AbortController(); // ends requests ahead when a chunk has failed
    const signal = AbortSignal.any([stopping.signal, ending.signal]);
    try {
      const options = { signal, etag: part.etag, onBytes };
      const download = await openDownload({ ...file, size: part.total }, part.done, options);
      if (download.start !== part.done) hasher.init(); // the server sends whole files only
      Object.assign(part, { done: download.start, total: download.total, etag: download.etag });
      const reserved = Math.max(data.getSize() - part.done, 0); // by an earlier download
      await checkRoom(this.#model.name, Math.max(this.#missing() - reserved, 0));
      data.truncate(part.total ?? 0); // reserves the room, or fails before the download
      for await (const chunk of download.chunks) this.#keep(i, data, hasher, chunk, download.isRanged);
      part.total ??= part.done;
    } finally {
      ending.abort();
      this.#arriving = 0;
    }
  }

  /** Bytes that the model still needs: of all files whose size is known. */
  #missing() {
    return this.#parts.reduce((sum, { done, total }) => sum + Math.max((total ?? 0) - done, 0), 0);
  }

  #keep(i, data, hasher, chunk, isResumable) {
    const part = this.#parts[i];
    writeAll(data, chunk, part.done);
    hasher.update(chunk);
    part.done += chunk.length;
    this.#arriving -= chunk.length;
    this.#report();
    if (!isResumable) return;
    data.flush();
    const { done, total, etag } = part;
    this.#note({ file: i, done, total, etag, hash: [...hasher.save()] });
  }

  #finish(i, file, digest) {
    const part = this.#parts[i];
    if (file.sha256 && digest !== file.sha256) {
      throw new ModelError("hash", { name: file.name, got: digest, want: file.sha256 });
    }
    part.digest = digest;
    this.#note({ file: i, done: part.done, total: part.done, etag: part.etag, digest });
  }

  /** Appends a record to the journal. */
  #note(record) {
    writeAll(this.#journal, new TextEncoder().encode(line(record)), this.#journal.getSize());
    this.#journal.flush();
  }

  /** Sends the progress to all tabs. */
  #report() {
    const now = performance.now();
    if (now - this.#reportedAt < PROGRESS_MS) return;
    this.#reportedAt = now;
    const { done, total } = sums(this.#parts);
    channel.postMessage({ key: this.#model.key, done: done + this.#arriving, total });
  }

  /** The error of a write that the browser refused. Its estimate is no help: some tell no true quota. */
  #full() {
    const [need, done] = [this.#missing(), sums(this.#parts).done].map((bytes) => ({ bytes }));
    const isSized = this.#parts.every(({ total }) => total !== null);
    return new ModelError(isSized ? "full" : "full-unsized", { name: this.#model.name, need, done });
  }
}

async function opened(folder, name) {
  const file = await folder.getFileHandle(name, { create: true });
  return file.createSyncAccessHandle();
}

/** Writes all bytes: a full storage may take some of them without an error. */
function writeAll(handle, bytes, at) {
  const written = handle.write(bytes, { at });
  if (written === bytes.length) return;
  throw new DOMException(`${written} of ${bytes.length} bytes were written`, "QuotaExceededError");
}
