// English, which the other languages fall back to. `{name}` stands for a value.

export const EN = {
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
  "address.images": "With the vision tower of the model (mmproj), if it has one, for images",
  "drop": "Drop a .gguf file, its parts or a folder here, with an mmproj file for images",
  "drop.files": "Choose files",
  "drop.folder": "Choose a folder",
  "stored": "On this device",
  "stored.none": "No model is stored yet.",
  "stored.gone": "{name} was deleted in another tab: download it again.",
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
  "mega": "{n} MB",
  "giga": "{n} GB",
  "seconds": "{n} s",
  "minutes": "{n} min",
  "hours": "{n} h",
  "cancelled": "The download of {name} was stopped. Its {done} stay, and it can be resumed.",
  "note.stored": "{name} is downloaded; Models opens it.",
  "note.failed": "The download of {name} failed. {why}",
  "note.default": "{repository} has no {preferred}; using {name}.",
  "note.tower": "{repository} has the mmproj files {names}; using {name}.",
  "note.offline": "{hub} cannot be reached; using {name}, stored earlier.",
  "names.more": "{names} and {n} more",
  "several.quant": "for {quant}",
  "several.untagged": "without a quant tag",

  "error.address": "'{text}' is neither a hub id nor an address; expected owner/repo, owner/repo:QUANT or "
    + "a URL.",
  "error.scheme": "'{text}' is no address of a server; expected http:// or https://. A file of this device "
    + "can be dropped here.",
  "error.no-name": "'{text}' names no file; expected an address like https://models.example/model.gguf.",
  "error.login": "The address contains a user name or password, which a page does not send; download the "
    + "file and drop it here.",
  "error.percent": "'{text}' has a percent sign that starts no valid escape of UTF-8; write %25 for the "
    + "sign itself.",
  "error.revision": "Invalid revision '{revision}'; expected a branch, tag or commit.",
  "error.file-name": "{repository} lists the unsafe file name '{name}'; nothing was fetched.",
  "error.no-quant": "{repository} has no {quant}; it has {known}.",
  "error.no-quant-files": "{repository} has no {quant}; its files are {known}.",
  "error.several": "{repository} has {n} files {selection}: {files}; name one file after the colon.",
  "error.no-gguf": "{repository} has no .gguf file; choose a GGUF repository, or convert it with "
    + "`camelid convert`.",
  "error.parts-absent": "{repository} lacks {files} of the model's {n} files; choose another quant, or "
    + "wait for the complete upload.",
  "error.gated": "{repository} is gated or private, and this page sends no token; download it with "
    + "`camelid pull`, then drop the file here.",
  "error.repository": "There is no repository {repository} at {hub}, or it is private; check the name.",
  "error.no-revision": "{repository} has no revision '{revision}'; {hub}/{repository}/tree/main lists "
    + "branches and tags.",
  "error.unreachable": "{place} cannot be reached: this device is offline, the server is down, or it "
    + "refuses requests of other sites' pages (CORS). Try again later, or download the file and drop it "
    + "here.",
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
  "error.cut": "{name}: the connection ended after {done} of {total}. Resume the download.",
  "error.cut-whole": "{name}: the connection ended after {done}, and this server sends no parts of a file. "
    + "Try again; the download starts from the beginning.",
  "error.changed": "{name} changed on the server during the download, and its parts were deleted. Download "
    + "it again.",
  "error.hash": "{name} arrived damaged and was deleted: its sha256 is {got}, expected {want}. Download it "
    + "again; if this persists, suspect a proxy.",
  "error.quota": "{name} needs {need} more, but this browser gives this site {free} (of {quota}). Delete a "
    + "stored model, or free space on the disk.",
  "error.full": "{name} needs {need} more than the {done} that are stored, and the browser's storage or "
    + "the disk is full. Delete a stored model, or free space on the disk, and download it again.",
  "error.full-unsized": "{name} does not fit: the browser's storage or the disk is full after {done}, and "
    + "the server does not tell the size of the file. Delete a stored model, or free space on the disk, "
    + "and download it again.",
  "error.no-store": "This browser keeps no files for this page ({reason}), perhaps in a private window. Use "
    + "an ordinary window, or drop a file here.",
  "error.busy": "{name} is being downloaded in another tab; stop it there first.",
  "error.drop-empty": "There is no .gguf file among these files.",
  "error.drop-several": "Several models at once: {names}. Open one model, or all parts of one.",
  "error.drop-towers": "Several mmproj files at once: {names}. Choose one beside the model.",
  "error.drop-tower-alone": "{name} is a vision tower alone. Open it together with its model.",
  "error.drop-part": "{name} is one of {n} parts; missing: {missing}. Open all parts together, or their "
    + "folder.",
  "error.unforeseen": "{message}",
};
