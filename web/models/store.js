// Models in the browser's private file system (OPFS): a folder for each, with its files and its journal.

import { isTower } from "./hub_id.js";
import { read, sums } from "./journal.js";
import { ModelError } from "./texts.js";

const FOLDER = "camelid-models";
export const JOURNAL = "journal.jsonl";
const MARGIN_BYTES = 1 << 20; // for the journal and the file system's own needs

/**
 * A stored model, perhaps in part. Sizes in bytes; `total` is null if no server has told it.
 * @typedef {{key: string, model: import("./address.js").RemoteModel, done: number, total: number | null,
 *   isComplete: boolean}} Stored
 */

/** The folder of all models. */
export async function models() {
  try {
    return await (await navigator.storage.getDirectory()).getDirectoryHandle(FOLDER, { create: true });
  } catch (error) {
    throw new ModelError("no-store", { reason: error?.message ?? "no OPFS" });
  }
}

/** The stored models, in the order of their names. */
export async function list() {
  const found = [];
  for await (const [key, folder] of await models()) {
    const state = folder.kind === "directory" ? await stateOf(folder) : null;
    if (state) found.push({ key, model: state.model, ...sums(state.parts), isComplete: state.isComplete });
  }
  return found.sort((a, b) => a.model.name.localeCompare(b.model.name));
}

/** The state that a folder's journal tells, or null. */
export async function stateOf(folder) {
  try {
    const file = await (await folder.getFileHandle(JOURNAL)).getFile();
    return read(await file.text());
  } catch (error) {
    if (error.name === "NotFoundError") return null;
    throw error;
  }
}

/**
 * Handles of a stored model, as `load` takes them: one handle, or one for each part; and its vision tower.
 * @typedef {{model: FileSystemFileHandle | FileSystemFileHandle[], mmproj?: FileSystemFileHandle}} Handles
 * @param {string} key
 * @returns {Promise<Handles | null>} null unless it is complete
 */
export async function opened(key) {
  const folder = await (await models()).getDirectoryHandle(key).catch(() => null);
  const state = folder && (await stateOf(folder));
  if (!state?.isComplete) return null;
  const handles = await Promise.all(state.model.files.map(({ name }) => folder.getFileHandle(name)));
  const mmproj = handles.find(({ name }) => isTower(name));
  const parts = handles.filter((handle) => handle !== mmproj);
  return { model: parts.length === 1 ? parts[0] : parts, mmproj };
}

/**
 * Deletes a model, unless a tab is downloading it.
 * @throws {ModelError}
 */
export async function remove({ key, model }) {
  await navigator.locks.request(lockName(key), { ifAvailable: true }, async (lock) => {
    if (!lock) throw new ModelError("busy", { name: model.name });
    await (await models()).removeEntry(key, { recursive: true });
  });
}

/** The name of the lock that a tab holds while it downloads a model. */
export function lockName(key) {
  return `camelid-model:${key}`;
}

/** Free and granted bytes of this site's storage; Infinity if the browser does not tell. */
export async function room() {
  const { usage = 0, quota = Infinity } = await navigator.storage.estimate();
  return { free: Math.max(quota - usage, 0), quota };
}

/** Throws an error with numbers if the browser tells that it has no room for `need` more bytes. */
export async function checkRoom(name, need) {
  const { free, quota } = await room();
  if (need + MARGIN_BYTES <= free) return;
  const [needed, left, granted] = [need, free, quota].map((bytes) => ({ bytes }));
  throw new ModelError("quota", { name, need: needed, free: left, quota: granted });
}
