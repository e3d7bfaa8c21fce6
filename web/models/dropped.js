// Files that a visitor drops or chooses: one .gguf file, all its parts, or a folder with them; perhaps with the
// model's mmproj file.

import { abbreviated, isTower, partNames } from "./hub_id.js";
import { ModelError } from "./texts.js";

/**
 * The model among files: its file, or its parts in order, and its vision tower.
 * @param {File[]} files
 * @returns {{model: File | File[], name: string, mmproj?: File}}
 * @throws {ModelError} unless there is exactly one model with all its parts, with one tower at most
 */
export function modelOf(files) {
  const ggufs = new Map(files.filter(({ name }) => /\.gguf$/i.test(name)).map((file) => [file.name, file]));
  const towers = [...ggufs.keys()].filter(isTower);
  const texts = [...ggufs.keys()].filter((name) => !isTower(name));
  const models = [...new Set(texts.map((name) => partNames(name)[0]))];
  if (!ggufs.size) throw new ModelError("drop-empty");
  if (!models.length) throw new ModelError("drop-tower-alone", { name: towers[0] });
  if (models.length > 1) throw new ModelError("drop-several", { names: abbreviated(models) });
  const names = partNames(models[0]);
  const missing = names.filter((name) => !ggufs.has(name));
  if (missing.length) {
    const [name] = texts;
    throw new ModelError("drop-part", { name, n: names.length, missing: abbreviated(missing) });
  }
  if (towers.length > 1) throw new ModelError("drop-towers", { names: abbreviated(towers) });
  const parts = names.map((name) => ggufs.get(name));
  const tower = towers.length ? { mmproj: ggufs.get(towers[0]) } : {};
  return { model: parts.length === 1 ? parts[0] : parts, name: names[0], ...tower };
}

/** All files of a drop, those inside dropped folders too. Reads `items` before the first await. */
export async function filesOf({ items }) {
  const entries = [...items].map((item) => item.webkitGetAsEntry()).filter(Boolean);
  return (await Promise.all(entries.map(filesIn))).flat();
}

async function filesIn(entry) {
  if (entry.isFile) return [await new Promise((resolve, reject) => entry.file(resolve, reject))];
  const reader = entry.createReader();
  const found = [];
  // readEntries gives a part of a folder at each call, and nothing at its end.
  for (let some = await entriesOf(reader); some.length; some = await entriesOf(reader)) found.push(...some);
  return (await Promise.all(found.map(filesIn))).flat();
}

function entriesOf(reader) {
  return new Promise((resolve, reject) => reader.readEntries(resolve, reject));
}
