// The journal of a stored model: JSON lines, only ever appended. A chunk's bytes are flushed before its line,
// so that whatever a crash leaves, the last whole line tells of bytes that are there. Pure.

/**
 * Progress of one file. `hash` is the state of SHA-256 after `done` bytes; `digest` the hash of the
 * whole file, once checked; `etag` the server's, null if it sends none.
 * @typedef {{done: number, total: number | null, hash: number[], etag: string | null,
 *   digest: string | null}} Part
 */

const NOTHING = { done: 0, total: null, hash: [], etag: null, digest: null };

/** A line of the journal. */
export function line(record) {
  return `${JSON.stringify(record)}\n`;
}

/**
 * The state that a journal tells; null if it has no whole first line.
 * @param {string} journal
 * @returns {{model: import("./address.js").RemoteModel, parts: Part[], isComplete: boolean} | null}
 */
export function read(journal) {
  const [first, ...rest] = journal.split("\n").slice(0, -1).map(parsed);
  if (!first?.model) return null;
  const { model } = first;
  const parts = model.files.map(({ size }) => ({ ...NOTHING, total: size }));
  for (const record of rest) if (parts[record?.file]) Object.assign(parts[record.file], record);
  return { model, parts, isComplete: parts.every(({ digest }) => digest !== null) };
}

/** Bytes stored and bytes in all; null while a server has not told the size of each file. */
export function sums(parts) {
  const sizes = parts.map(({ total }) => total);
  return {
    done: parts.reduce((sum, part) => sum + part.done, 0),
    total: sizes.includes(null) ? null : sizes.reduce((sum, size) => sum + size, 0),
  };
}

function parsed(text) {
  try {
    return JSON.parse(text);
  } catch {
    return null; // a torn line
  }
}
