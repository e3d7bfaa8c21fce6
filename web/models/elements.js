// Elements of the models dialog. Nothing here has state.

import { text } from "./texts.js";

/** Makes an element with properties and children. */
export function element(tag, properties = {}, ...children) {
  const made = Object.assign(document.createElement(tag), properties);
  made.append(...children);
  return made;
}

/** A button named by a key of the texts, with the label `KEY.label` for those who hear it alone. */
export function button(key, values, act) {
  const made = element("button", { type: "button", textContent: text(key) });
  made.ariaLabel = text(`${key}.label`, values);
  made.addEventListener("click", act);
  return made;
}

/** Fills the dialog and returns the elements that change. */
export function frame(dialog) {
  const at = {
    close: element("button", { type: "button", className: "close", textContent: "×" }),
    device: element("p", { className: "quiet" }),
    address: element("input", { id: "models-address", name: "model", autocomplete: "off" }),
    files: element("input", { type: "file", accept: ".gguf", multiple: true }),
    folder: element("input", { type: "file", webkitdirectory: true }),
    note: element("p", { className: "note", role: "status" }),
    problem: element("p", { className: "problem", role: "alert" }),
    jobs: element("ul", { className: "jobs" }),
    stored: element("ul"),
    total: element("p", { className: "quiet" }),
    known: element("ul"),
  };
  at.close.ariaLabel = text("close");
  at.form = addressForm(at.address);
  at.drop = dropZone(at);
  const title = element("h2", { id: "models-title", textContent: text("title") });
  dialog.classList.add("models");
  dialog.setAttribute("aria-labelledby", title.id);
  dialog.replaceChildren(
    element("header", {}, title, at.close),
    at.form, at.drop, at.problem, at.note, at.jobs,
    section("stored", at.stored, at.total),
    section("known", at.known, at.device),
  );
  return at;
}

function addressForm(input) {
  const label = element("label", { htmlFor: input.id, textContent: text("address") });
  const hint = element("small", { id: "models-hint", className: "quiet", textContent: text("address.hint") });
  input.setAttribute("aria-describedby", hint.id);
  const open = element("button", { className: "primary", textContent: text("address.open") });
  return element("form", { method: "dialog" }, label, element("div", {}, input, open), hint);
}

function dropZone({ files, folder }) {
  const choices = [["drop.files", files], ["drop.folder", folder]].map(([key, input]) =>
    element("label", { className: "choice" }, text(key), input));
  return element("div", { className: "drop" }, element("span", { textContent: text("drop") }), ...choices);
}

function section(key, ...children) {
  const title = element("h3", { id: `models-${key}`, textContent: text(key) });
  const made = element("section", {}, title, ...children);
  made.setAttribute("aria-labelledby", title.id);
  return made;
}

/** A row of a list: a name, lines of detail, buttons. */
export function row({ name, detail, judged = "", buttons }) {
  const lines = detail.filter(Boolean).map((line) => element("small", { textContent: line }));
  const words = element("div", {}, element("strong", { textContent: name }), ...lines);
  const made = element("li", {}, words, element("div", { className: "acts" }, ...buttons));
  made.dataset.verdict = judged;
  return made;
}

/** A row with the progress of a download; `tell` shows it, `end` removes the row. */
export function progressRow(name, stop) {
  const title = element("strong", { textContent: name });
  const bar = element("progress", { max: 1 });
  const figures = element("small", { textContent: text("progress.waiting", { name }) });
  const words = element("div", {}, title, bar, figures);
  const cancel = button("cancel", { name }, stop);
  const made = element("li", {}, words, element("div", { className: "acts" }, cancel));
  const tell = (known, progress, line) => {
    title.textContent = known;
    bar.ariaLabel = text("progress.label", { name: known });
    cancel.ariaLabel = text("cancel.label", { name: known });
    if (progress?.total) bar.value = progress.done / progress.total;
    if (line) figures.textContent = line;
  };
  return { made, tell, end: () => made.remove() };
}
