// Hub ids and the choice of a repository's files, by the rules of core/camelid/formats/hub/ids.py. Pure.

import { ModelError, text } from "./texts.js";

const NAME = String.raw`(?![\w.-]*(?:\.\.|--))[A-Za-z0-9](?:[\w.-]{0,94}\w)?`;
const PREFIX = /^(?:hf:\/\/(?:models\/)?|(?:https?:\/\/)?(?:www\.)?(?:hf\.co|huggingface\.co)\/)/i;
const ID = new RegExp(String.raw`^(${NAME})/(${NAME})(?:@([^:@\s]+))?(?::(\S.*))?$`);
const PAGE = new RegExp(
  String.raw`^(${NAME})/(${NAME})/(?:tree|blob|resolve)/([^/?#]+)(?:/([^?#]+))?(?:[?#].*)?$`,
);
const FILE = new RegExp(String.raw`^(${NAME})/(${NAME})(?:@([^:@/\s]+))?/([^?#]+\.gguf)$`);
const REVISION = /^(?!.*\.\.)[\w+](?:[\w./+-]{0,253}[\w.+-])?$/;
const TYPE = String.raw`I?Q\d(?:_[A-Z0-9]+)*|TQ\d_\d|BF16|F16|F32|MXFP4(?:_MOE)?|NVFP4`;
const TAG = new RegExp(String.raw`(?:^|[-._/])((?:UD-)?(?:${TYPE}))(?=[-._/]|$)`, "gi");
const PART = /^([^]*-)\d{5}(-of-(?!0000[01])(\d{5})\.gguf)$/i;
const NOT_A_MODEL = /(?:^|[-._/])(?:mmproj|imatrix)(?:[-._/]|$)/i;
const TOWER = /(?:^|[-._/])mmproj(?:[-._/]|$)/i;
const UNPRINTABLE = /[\p{C}\p{Zl}\p{Zp}]|(?! )\p{Zs}/u;
// Default quants, best first by quality for size.
const PREFERRED = [
  "Q4_K_M", "Q4_K_S", "Q4_0", "Q5_K_M", "Q5_K_S", "Q6_K", "Q8_0", "Q3_K_M", "BF16", "F16", "F32",
];
const PREFERRED_TOWERS = ["F16", "BF16", "F32", "Q8_0"];

/**
 * A model on a hub. `quant` is a tag such as Q4_K_M, a file name, or a word in a file's path.
 * @typedef {{owner: string, repo: string, quant: string | null, revision: string | null}} HubId
 */

/**
 * Parses a hub id; null if the text is none. A page has no local paths, so `owner/repo/file.gguf` is an id
 * here without the prefix hf://, too.
 * @param {string} id
 * @returns {HubId | null}
 * @throws {ModelError} for an invalid revision or escape
 */
export function parseHubId(id) {
  const prefix = PREFIX.exec(id)?.[0] ?? "";
  const rest = prefix ? id.slice(prefix.length).replace(/\/$/, "") : id;
  const found = (prefix && PAGE.exec(rest)) || FILE.exec(rest) || ID.exec(rest);
  if (!found) return null;
  const parts = found.slice(1).map((part) => (part ? decoded(part, id) : null));
  const [owner, repo, revision, quant] = parts;
  if (!prefix && !quant && /\.(?:gguf|safetensors)$/i.test(repo)) return null;
  if (revision && !REVISION.test(revision)) {
    throw new ModelError("revision", { revision: revision.slice(0, 80) });
  }
  return { owner, repo, quant, revision };
}

/**
 * A part of an address without percent escapes.
 * @throws {ModelError} for a percent sign that starts none, with the address `whole`
 */
export function decoded(part, whole = part) {
  try {
    return decodeURIComponent(part);
  } catch {
    throw new ModelError("percent", { text: whole.slice(0, 200) });
  }
}

/** The id as a text, with or without the quant. */
export function hubName({ owner, repo, quant, revision }, withQuant = true) {
  return `${owner}/${repo}${revision ? `@${revision}` : ""}${withQuant && quant ? `:${quant}` : ""}`;
}

/**
 * Chooses the .gguf file of a model, or all its parts.
 * @param {string[]} listing paths in the repository; parts that it lacks are returned, too
 * @param {string | null} quant
 * @param {string} repository the name in messages
 * @returns {{names: string[], note: string}} a note tells of a default quant other than Q4_K_M
 * @throws {ModelError} unless exactly one model matches, and for an unsafe file name
 */
export function chooseFiles(listing, quant, repository) {
  for (const name of listing) checkName(name, repository);
  const ggufs = listing.filter((name) => isGguf(name) && !NOT_A_MODEL.test(name)).sort(byCodePoint);
  if (!ggufs.length) throw new ModelError("no-gguf", { repository });
  const models = [...new Set(ggufs.map(firstPart))];
  const { name, note } = quant
    ? { name: named(models, quant, repository), note: "" }
    : preferred(models, repository);
  return { names: partNames(name), note };
}

/**
 * Chooses the vision tower of a model: the nearest in its folder and those above, of several by type.
 * @param {string[]} listing paths in the repository
 * @param {string} model path of the model's file
 * @param {string} repository the name in messages
 * @returns {{name: string | null, note: string}} a note tells of a choice by names alone
 */
export function chooseTower(listing, model, repository) {
  const towers = listing.filter((name) => isGguf(name) && isTower(name) && model.startsWith(folderOf(name)));
  const ranked = towers.sort((a, b) => towerRank(a) - towerRank(b) || byCodePoint(a, b));
  const best = ranked.filter((name) => towerRank(name) === towerRank(ranked[0]));
  if (best.length < 2) return { name: best[0] ?? null, note: "" };
  return { name: best[0], note: text("note.tower", { repository, names: abbreviated(best), name: best[0] }) };
}

/** The nearest folder comes first, then the preferred type. */
function towerRank(name) {
  const type = PREFERRED_TOWERS.indexOf(quantTag(name));
  const last = PREFERRED_TOWERS.length;
  return (type < 0 ? last : type) - (last + 1) * name.split("/").length;
}

function folderOf(name) {
  return name.slice(0, name.lastIndexOf("/") + 1);
}

function isGguf(name) {
  return /\.gguf$/i.test(name);
}

/** True for the file name of a vision tower. */
export function isTower(name) {
  return TOWER.test(name);
}

/** The last quant tag in a file's name, else in its path, in capitals; "" if there is none. */
export function quantTag(name) {
  const tags = tagsOf(name.split("/").at(-1));
  return (tags.length ? tags : tagsOf(name)).at(-1)?.toUpperCase() ?? "";
}

/** Names of all parts of a model, from the name of any of them; a whole file's name alone. */
export function partNames(name) {
  const part = PART.exec(name);
  if (!part) return [name];
  const [, stem, end, count] = part;
  return Array.from({ length: Number(count) }, (_, i) => `${stem}${`${i + 1}`.padStart(5, "0")}${end}`);
}

/** Names for a message: the first eight, and the number of the others. */
export function abbreviated(names) {
  const shown = names.slice(0, 8).join(", ");
  return names.length > 8 ? text("names.more", { names: shown, n: names.length - 8 }) : shown;
}

function tagsOf(name) {
  return [...name.matchAll(TAG)].map((match) => match[1]);
}

function byCodePoint(a, b) {
  const [left, right] = [[...a], [...b]];
  const at = left.findIndex((char, i) => char !== right[i]);
  if (at < 0) return left.length - right.length;
  return at < right.length ? left[at].codePointAt(0) - right[at].codePointAt(0) : 1;
}

function checkName(name, repository) {
  if (!name.split("/").some(isUnsafe)) return;
  throw new ModelError("file-name", { repository, name: name.slice(0, 80) });
}

/** Whether a name without folders is no name of a file. */
export function isUnsafe(name) {
  return ["", ".", ".."].includes(name) || /[\\/:]/.test(name) || UNPRINTABLE.test(name);
}

function firstPart(name) {
  return partNames(name)[0];
}

function named(models, quant, repository) {
  const target = firstPart(quant).toUpperCase();
  const word = new RegExp(String.raw`(?:^|[-._/])${target.replace(/[^\w]/g, "\\$&")}[-./]`);
  const matches = [
    (name) => [name, name.split("/").at(-1)].some((it) => it.toUpperCase() === target),
    (name) => quantTag(name) === target,
    (name) => word.test(name.toUpperCase()),
  ];
  const found = matches.map((matches) => models.filter(matches)).find((names) => names.length);
  if (found) return only(found, text("several.quant", { quant }), repository);
  const tags = [...new Set(models.map(quantTag).filter(Boolean))].sort(byCodePoint);
  if (tags.length) throw new ModelError("no-quant", { repository, quant, known: tags.join(", ") });
  throw new ModelError("no-quant-files", { repository, quant, known: abbreviated(models) });
}

/** The only model of a selection; a whole file takes precedence over parts. */
function only(names, selection, repository) {
  const whole = names.filter((name) => !PART.test(name));
  const found = whole.length ? whole : names;
  if (found.length === 1) return found[0];
  throw new ModelError("several", { repository, n: found.length, selection, files: abbreviated(found) });
}

function preferred(models, repository) {
  const tags = new Set(models.map(quantTag));
  const wanted = PREFERRED.flatMap((tag) => [tag, `UD-${tag}`]).find((tag) => tags.has(tag));
  const tag = wanted ?? quantTag(models[0]);
  const selection = tag ? text("several.quant", { quant: tag }) : text("several.untagged");
  const name = only(models.filter((model) => quantTag(model) === tag), selection, repository);
  if (models.length === 1 || tag === PREFERRED[0]) return { name, note: "" };
  return { name, note: text("note.default", { repository, preferred: PREFERRED[0], name }) };
}
