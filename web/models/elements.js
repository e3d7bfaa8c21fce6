// Elements of the models dialog. Nothing here has state.

import { make } from "../elements.js";
import { text } from "./texts.js";

/** A button named by a key of the texts, with the label `KEY.label` for those who hear it alone. */
export function button(key, values, act) {
  const made = make("button", { type: "button", textContent: text(key) });
  made.ariaLabel = text(`${key}.label`, values);
  made.addEventListener("click", act);
  return made;
}

/** Fills the dialog and returns the elements that change. */
export function frame(dialog) {
  const at = {
    close: make("button", { type: "button", className: "close", textContent: "×" }),
    device: make("p", { className: "quiet" }),
    address: make("input", { id: "models-address", name: "model", autocomplete: "off" }),
    images: make("input", { type: "checkbox", checked: true }),
    files: make("input", { type: "file", accept: ".gguf", multiple: true }),
    folder: make("input", { type: "file", webkitdirectory: true }),
    note: make("p", { className: "note", role: "status" }),
    problem: make("p", { className: "problem", role: "alert" }),
    jobs: make("ul", { className: "jobs" }),
    stored: make("ul"),
    total: make("p", { className: "quiet" }),
    known: make("ul"),
  };
  at.close.ariaLabel = text("close");
  at.form = addressForm(at.address, at.images);
  at.drop = dropZone(at);
  const title = make("h2", { id: "models-title", textContent: text("title") });
  dialog.classList.add("models");
  dialog.setAttribute("aria-labelledby", title.id);
  dialog.replaceChildren(
    make("header", {}, title, at.close),
    at.form, at.drop, at.problem, at.note, at.jobs,
    section("stored", at.stored, at.total),
    section("known", at.known, at.device),
  );
  return at;
}

function addressForm(input, images) {
  const label = make("label", { htmlFor: input.id, textContent: text("address") });
  const hint = make("small", { id: "models-hint", className: "quiet", textContent: text("address.hint") });
  input.setAttribute("aria-describedby", hint.id);
  const open = make("button", { className: "primary", textContent: text("address.open") });
  const choice = make("label", { className: "quiet" }, images, text("address.images"));
  return make("form", { method: "dialog" }, label, make("div", {}, input, open), hint, choice);
}

function dropZone({ files, folder }) {
  const choices = [["drop.files", files], ["drop.folder", folder]].map(([key, input]) =>
    make("label", { className: "choice" }, text(key), input));
  return make("div", { className: "drop" }, make("span", { textContent: text("drop") }), ...choices);
}

function section(key, ...children) {
  const title = make("h3", { id: `models-${key}`, textContent: text(key) });
  const made = make("section", {}, title, ...children);
  made.setAttribute("aria-labelledby", title.id);
  return made;
}

/** A row of a list: a name, lines of detail, buttons. */
export function row({ name, detail, judged = "", buttons }) {
  const lines = detail.filter(Boolean).map((line) => make("small", { textContent: line }));
  const words = make("div", {}, make("strong", { textContent: name }), ...lines);
  const made = make("li", {}, words, make("div", { className: "acts" }, ...buttons));
  made.dataset.verdict = judged;
  return made;
}

/** A row with the progress of a download; `tell` shows it, `end` removes the row. */
export function progressRow(name, stop) {
  const title = make("strong", { textContent: name });
  const bar = make("progress", { max: 1 });
  const figures = make("small", { textContent: text("progress.waiting", { name }) });
  const words = make("div", {}, title, bar, figures);
  const cancel = button("cancel", { name }, stop);
  const made = make("li", {}, words, make("div", { className: "acts" }, cancel));
  const tell = (known, progress, line) => {
    title.textContent = known;
    bar.ariaLabel = text("progress.label", { name: known });
    cancel.ariaLabel = text("cancel.label", { name: known });
    if (progress?.total) bar.value = progress.done / progress.total;
    if (line) figures.textContent = line;
  };
  return { made, tell, end: () => made.remove() };
}
