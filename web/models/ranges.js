// A file over HTTP as chunks in order, from any offset on: range requests of fixed size, some of them ahead,
// each tried again when the connection ends.

import { contentRange, pieces } from "../http.js";
import { Interrupted, retried, sleep, statusError, unreachable } from "./requests.js";
import { ModelError } from "./texts.js";

export const CHUNK_BYTES = 4 << 20;
const AHEAD = 3; // requests at once: hides a request's latency, which a redirect doubles

/**
 * An opened download. `chunks` yields the bytes from `start` on, in order; `isRanged` is false for a server
 * that sends whole files only, `total` null if it does not tell the size.
 * @typedef {{start: number, total: number | null, etag: string | null, isRanged: boolean,
 *   chunks: AsyncGenerator<Uint8Array>}} Download
 */

/**
 * Requests a file's bytes from an offset on.
 * @param {import("./address.js").RemoteFile} file
 * @param {number} from
 * @param {{signal: AbortSignal, etag: string | null, onBytes: (n: number) => void}} options `etag` of an
 *   earlier part, which the server must still have; onBytes counts arriving bytes, and uncounts lost ones
 * @returns {Promise<Download>}
 * @throws {ModelError}
 */
export async function openDownload(file, from, { signal, etag, onBytes }) {
  const job = { file, signal, onBytes, etag, total: file.size };
  const end = file.size === null ? from + CHUNK_BYTES : Math.min(from + CHUNK_BYTES, file.size);
  const response = await retried(() => request(job, from, end), signal).catch((error) => {
    throw error instanceof Interrupted ? error.problem : error;
  });
  checkEtag(job, response);
  if (response.status === 200) return wholeDownload(job, response);
  const place = placeOf(job, response, from, end);
  job.total = place.total;
  const first = body(job, response, place.end - from);
  first.catch(() => {}); // chunks() awaits it
  return { start: from, total: job.total, etag: job.etag, isRanged: true, chunks: chunks(job, from, first) };
}

async function* chunks(job, from, first) {
  const ahead = [again(job, from, first)];
  let next = from + CHUNK_BYTES;
  while (ahead.length) {
    for (; ahead.length < AHEAD && next < job.total; next += CHUNK_BYTES) ahead.push(again(job, next));
    yield await ahead.shift();
  }
}

/** A chunk; `first` is the first attempt, if it is under way. */
function again(job, from, first) {
  const chunk = retried(() => fetchChunk(job, from), job.signal, first).catch((error) => {
    throw error instanceof Interrupted ? cut(job, from) : error;
  });
  chunk.catch(() => {}); // a chunk ahead may fail before it is awaited
  return chunk;
}

async function fetchChunk(job, from) {
  const end = Math.min(from + CHUNK_BYTES, job.total);
  const response = await request(job, from, end);
  checkEtag(job, response);
  if (response.status === 200) throw wrongRange(job, from, end, "status 200");
  placeOf(job, response, from, end);
  return body(job, response, end - from);
}

async function request({ file, signal }, from, end) {
  const watch = watchPolicy(file.url);
  try {
    // no-store: a cache would keep a second copy, and put the stored etag on parts of a changed file.
    const headers = { Range: `bytes=${from}-${end - 1}` };
    const response = await fetch(file.url, { cache: "no-store", signal, headers });
    if (response.status === 200 || response.status === 206) return response;
    if (response.status === 416) throw new ModelError("changed", { name: file.name });
    throw statusError(file.url, response.status);
  } catch (error) {
    if (signal.aborted || error instanceof ModelError || error instanceof Interrupted) throw error;
    throw (await watch.violation()) ?? unreachable(file.url);
  } finally {
    watch.end();
  }
}

/** Tells a request that the page's policy refused from one that failed; both reject alike. */
function watchPolicy(url) {
  let blocked = null;
  const listen = ({ blockedURI }) => (blocked = blockedURI);
  self.addEventListener("securitypolicyviolation", listen);
  return {
    violation: async () => {
      await sleep(0.05); // the event may follow the rejection
      return blocked && new ModelError("policy", { place: origin(URL.canParse(blocked) ? blocked : url) });
    },
    end: () => self.removeEventListener("securitypolicyviolation", listen),
  };
}

/** Notes the first etag, and refuses another. */
function checkEtag(job, { headers }) {
  const etag = headers.get("etag");
  if (job.etag && etag && etag !== job.etag) throw new ModelError("changed", { name: job.file.name });
  job.etag ??= etag;
}

/**
 * Where the bytes of a 206 lie. A server of another origin may hide the header; then the size must be known,
 * and the hash of the whole file judges.
 */
function placeOf(job, response, from, end) {
  const header = response.headers.get("content-range");
  if (header === null && job.total !== null) return { end, total: job.total };
  const place = contentRange(response);
  if (place && job.total !== null && place.total !== job.total) {
    throw new ModelError("changed", { name: job.file.name });
  }
  if (place?.start === from && place.end === Math.min(end, place.total)) return place;
  throw wrongRange(job, from, end, header ?? "no content-range");
}

/** Exactly `length` bytes of a body. */
async function body({ onBytes }, response, length) {
  const bytes = new Uint8Array(length);
  let at = 0;
  try {
    for await (const piece of pieces(response)) {
      bytes.set(piece, at); // a RangeError if there are more than `length`
      at += piece.length;
      onBytes(piece.length);
    }
    if (at === length) return bytes;
  } catch {
    // as for too few bytes
  }
  onBytes(-at);
  throw new Interrupted();
}

function wholeDownload(job, response) {
  const isPlain = !response.headers.has("content-encoding");
  const hasLength = isPlain && response.headers.has("content-length");
  const total = hasLength ? Number(response.headers.get("content-length")) : job.total;
  if (job.total !== null && total !== job.total) throw new ModelError("changed", { name: job.file.name });
  return { start: 0, total, etag: job.etag, isRanged: false, chunks: wholeChunks(job, response, total) };
}

/** The pieces of a whole file, gathered to chunks. */
async function* wholeChunks(job, response, total) {
  let [held, bytes, done] = [[], 0, 0];
  for await (const piece of piecesOrCut(job, response, () => done)) {
    job.onBytes(piece.length);
    held.push(piece);
    bytes += piece.length;
    done += piece.length;
    if (bytes < CHUNK_BYTES) continue;
    yield joined(held, bytes);
    [held, bytes] = [[], 0];
  }
  if (total !== null && done !== total) throw cutWhole(job, done);
  if (bytes) yield joined(held, bytes);
}

async function* piecesOrCut(job, response, done) {
  try {
    yield* pieces(response);
  } catch (error) {
    throw job.signal.aborted ? error : cutWhole(job, done());
  }
}

function joined(pieces, bytes) {
  const all = new Uint8Array(bytes);
  let at = 0;
  for (const piece of pieces) {
    all.set(piece, at);
    at += piece.length;
  }
  return all;
}

function cut({ file, total }, done) {
  return new ModelError("cut", { name: file.name, done: { bytes: done }, total: { bytes: total } });
}

function cutWhole({ file }, done) {
  return new ModelError("cut-whole", { name: file.name, done: { bytes: done } });
}

function wrongRange({ file }, from, to, got) {
  return new ModelError("range", { url: file.url, from, to, got });
}

function origin(url) {
  return new URL(url).origin;
}
