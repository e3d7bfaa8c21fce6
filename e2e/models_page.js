// A page with the models dialog alone: no Python, no model that starts by itself.

import { openModels } from "./models/models.js";
import { list } from "./models/store.js";

const button = document.getElementById("show");
globalThis.opened = [];
globalThis.notices = [];
globalThis.stored = list;
button.addEventListener("click", () => {
  const onOpen = (model, name, mmproj) => globalThis.opened.push({ model, name, mmproj });
  const onNotice = (text, isFailure) => globalThis.notices.push({ text, isFailure });
  openModels(document.getElementById("models"), { onOpen, onNotice });
});
button.click();

/** {name, files: [{name, size, sha256}]} of the model that was opened last, its vision tower included. */
globalThis.lastOpened = async () => {
  const { model, name, mmproj } = globalThis.opened.at(-1);
  return { name, files: await Promise.all([model, mmproj ?? []].flat().map(facts)) };
};

async function facts(handle) {
  const file = handle instanceof File ? handle : await handle.getFile();
  const hash = new Uint8Array(await crypto.subtle.digest("SHA-256", await file.arrayBuffer()));
  return { name: file.name, size: file.size, sha256: hash.toHex() };
}
