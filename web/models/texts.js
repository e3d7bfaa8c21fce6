// Texts of the models dialog, by key; `{name}` stands for a value. A page in another language calls setTexts.

export const TEXTS = {
  "title": "Models",
  "close": "Close",
  "device": "This device: {memory}; {gpu}; {free} of storage free.",
  "device.memory": "{bytes} of memory",
  "device.memory.most": "at least {bytes} of memory",
  "device.memory.unknown": "memory unknown to this browser",
  "device.gpu": "WebGPU with buffers up to {bytes}",
  "device.cpu": "no WebGPU, so models run on the processor",
  "address": "Hub id or address",
  "address.hint": "owner/repo, owner/repo:Q4_K_M, owner/repo/file.gguf, owner/repo@revision, or a URL",
  "address.open": "Open",
  "drop": "Drop a .gguf file, its parts or a folder here",
  "drop.files": "Choose files",
  "drop.folder": "Choose a folder",
  "stored": "On this device",
  "stored.none": "No model is stored yet.",
  "stored.total": "{used} stored, {free} free. {kept}",
  "stored.kept": "The browser keeps them until you delete them.",
  "stored.evictable": "The browser may delete them when the disk is full.",
  "stored.partial": "{done} of {total}",
  "known": "Known small models",
  "known.need": "{bytes}, {memory} of memory with a context of {context}",
  "verdict.fits": "fits this device",
  "verdict.tight": "may not fit this device",
  "verdict.large": "too large for this device",
  "verdict.unknown": "",
  "open": "Open",
  "open.label": "Open {name}",
  "resume": "Resume",
  "resume.label": "Resume the download of {name}",
  "download": "Download",
  "download.label": "Download {name}",
  "delete": "Delete",
  "delete.label": "Delete {name}",
  "delete.sure": "Delete {bytes}?",
  "cancel": "Cancel",
  "cancel.label": "Cancel the download of {name}",
  "progress.label": "Download of {name}",
  "progress.waiting": "Looking up {name}",
  "progress.line": "{done} of {total} · {rate}/s · {left} left",
  "progress.start": "{done} of {total}",
  "progress.unknown": "{done} · {rate}/s",
  "seconds": "{n} s",
  "minutes": "{n} min",
  "hours": "{n} h",
  "cancelled": "The download of {name} was stopped. Its {done} stay, and it can be resumed.",
  "note.offline": "{hub} cannot be reached; using {name}, stored earlier.",

  "error.address": "'{text}' is neither a hub id nor an address; expected owner/repo, owner/repo:QUANT or "
    + "a URL.",
  "error.revision": "Invalid revision '{revision}'; expected a branch, tag or commit.",
  "error.file-name": "{repository} lists the file name '{name}', which is unsafe; nothing was fetched.",
  "error.no-quant": "{repository} has no {quant}; it has {known}.",
  "error.no-quant-files": "{repository} has no {quant}; its files are {known}.",
  "error.several": "{repository} has {n} files {selection}: {files}; name one file after the colon.",
  "several.quant": "for {quant}",
  "several.untagged": "without a quant tag",
  "names.more": "{names} and {n} more",
  "note.default": "{repository} has no {preferred}; using {name}.",
  "error.no-gguf": "{repository} has no .gguf file, and a page opens GGUF only; choose a GGUF repository, "
    + "or convert it with `camelid convert`.",
  "error.parts-absent": "{repository} lacks {files} of the model's {n} files; choose another quant, or "
    + "wait for the complete upload.",
  "error.gated": "{repository} is gated or private, and this page sends no token; download it with "
    + "`camelid pull`, then drop the file here.",
  "error.repository": "There is no repository {repository} at {hub}, or it is private; check the name.",
  "error.no-revision": "{repository} has no revision '{revision}'; branches and tags are listed at "
    + "{hub}/{repository}/tree/main.",
  "error.unreachable": "{place} cannot be reached: this device is offline, the server is down, or it does "
    + "not allow requests of other sites' pages (CORS). Download the file and drop it here, or try again "
    + "later.",
  "error.policy": "This page's policy does not allow {place}; its server allows it with `camelid web "
    + "--connect {place}`. Or download the file and drop it here.",
  "error.status": "{url}: the server answered {status}. {advice}",
  "advice.missing": "Check the address.",
  "advice.refused": "The file needs an account; download it there and drop the file here.",
  "advice.later": "Try again later.",
  "advice.none": "Expected 200 or 206.",
  "error.listing": "{hub} is no model hub: its listing has no commit or no files.",
  "error.range": "{url}: bytes {from} to {to} were requested, the server sent {got}; download the file and "
    + "drop it here.",
  "error.cut": "{name}: the connection ended after {done} of {total}. What has arrived is kept; resume the "
    + "download.",
  "error.cut-whole": "{name}: the connection ended after {done}, and this server sends no parts of a file: "
    + "the download starts from the beginning. Try again.",
  "error.changed": "{name} changed on the server during the download; what had arrived was deleted. "
    + "Download it again.",
  "error.hash": "{name} arrived damaged and was deleted: its sha256 is {got}, expected {want}. Download it "
    + "again; if this persists, suspect a proxy.",
  "error.quota": "{name} needs {need} more, but this browser gives this site {free} (of {quota}). Delete a "
    + "stored model, or free space on the disk.",
  "error.full": "{name} needs {need} more than the {done} that are stored, and the browser's storage or "
    + "the disk is full. Delete a stored model, or free space on the disk, and resume.",
  "error.no-store": "This browser keeps no files for this page ({reason}); a private window, perhaps. Use "
    + "an ordinary window, or drop a file here.",
  "error.busy": "{name} is being downloaded in another tab; stop it there first.",
  "error.drop-empty": "There is no .gguf file among what was dropped.",
  "error.drop-several": "Several models were dropped: {names}. Drop one model, or all parts of one.",
  "error.drop-part": "{name} is one of {n} parts, and {missing} are missing; drop all parts together, or "
    + "their folder.",
  "error.unforeseen": "{message}",
};

let table = TEXTS;

/** Replaces texts by key; keys that `texts` lacks stay English. */
export function setTexts(texts) {
  table = { ...TEXTS, ...texts };
}

/** The text of a key with its values inserted; a value `{key}` is a text itself, `{bytes}` a size. */
export function text(key, values = {}) {
  return table[key].replace(/\{(\w+)\}/g, (_, name) => shown(values[name]));
}

function shown(value) {
  if (value?.key) return text(value.key);
  return value?.bytes === undefined ? value : size(value.bytes);
}

/** An error with a key of the table, so that it crosses from a worker and is shown in the page's language. */
export class ModelError extends Error {
  name = "ModelError";

  constructor(key, values = {}) {
    super(text(`error.${key}`, values));
    this.key = key;
    this.values = values;
  }
}

/** Bytes in MB or GB, as hubs count them. */
export function size(bytes) {
  const [unit, digits] = bytes < 1e9 ? [1e6, bytes < 1e8 ? 1 : 0] : [1e9, 2];
  return `${number(bytes / unit, digits)} ${unit === 1e6 ? "MB" : "GB"}`;
}

/** A duration in its largest unit. */
export function duration(seconds) {
  if (seconds < 90) return text("seconds", { n: number(Math.ceil(seconds), 0) });
  if (seconds < 5400) return text("minutes", { n: number(Math.ceil(seconds / 60), 0) });
  return text("hours", { n: number(seconds / 3600, 1) });
}

function number(value, digits) {
  const language = globalThis.document?.documentElement.lang || "en";
  return value.toLocaleString(language, { minimumFractionDigits: digits, maximumFractionDigits: digits });
}
