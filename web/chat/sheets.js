// The page's dialogs: settings, schema, shortcuts, and questions.

import { at, make } from "./elements.js";
import { SHORTCUTS } from "./keys.js";
import { faultOf, SAMPLING } from "./settings.js";
import { currentLanguage, LANGUAGES, text } from "./texts.js";

const THEMES = ["system", "light", "dark"];
const EXAMPLE = {
  type: "object",
  properties: { answer: { type: "string" }, confidence: { type: "number" } },
  required: ["answer", "confidence"],
};

/** Fills a dialog with a title, content and a button to close it; a click beside it closes it, too. */
function open(id, title, ...content) {
  const dialog = at(id);
  const heading = make("h2", { id: `${id}-title`, textContent: title });
  const close = make("button", { type: "button", className: "close", textContent: text("close") });
  close.addEventListener("click", () => dialog.close());
  dialog.onclick = ({ target }) => {
    if (target === dialog) dialog.close();
  };
  dialog.replaceChildren(make("div", { className: "sheet-head" }, heading, close), ...content);
  if (!dialog.open) dialog.showModal();
  return dialog;
}

/**
 * Asks a question: for a text if `value` is given, else whether to go on.
 * @returns {Promise<string | boolean | null>} the text or true; null if the visitor says no
 */
export function ask(title, { value, action = text("ok"), isDanger = false } = {}) {
  const dialog = at("question");
  const isText = value !== undefined;
  const heading = make(isText ? "label" : "h2", {
    id: "question-title",
    className: "question",
    textContent: title,
  });
  const field = make("input", {
    id: "question-field",
    type: "text",
    value: value ?? "",
    autocomplete: "off",
  });
  if (isText) heading.htmlFor = field.id;
  const no = make("button", { type: "button", textContent: text("cancel") });
  const yes = make("button", {
    type: "submit",
    textContent: action,
    className: isDanger ? "primary bad" : "primary",
  });
  const form = make(
    "form",
    { method: "dialog" },
    heading,
    ...(isText ? [field] : []),
    make("div", { className: "row" }, no, yes),
  );
  no.addEventListener("click", () => dialog.close());
  dialog.returnValue = "";
  dialog.replaceChildren(form);
  dialog.showModal();
  if (isText) field.select();
  return new Promise((resolve) => {
    let given = null;
    form.addEventListener("submit", () => (given = isText ? field.value : true));
    dialog.addEventListener("close", () => resolve(given), { once: true });
  });
}

/**
 * Shows the settings.
 * @param {{settings: Record<string, string>, system: string, theme: string}} now
 * @param {{onSetting: (name: string, value: string) => void, onSystem: (text: string) => void,
 *   onTheme: (name: string) => void, onLanguage: (name: string) => void, onDeleteAll: () => void}} on
 */
export function openSettings(now, on) {
  const system = make("textarea", { id: "system", rows: 3, value: now.system });
  system.addEventListener("change", () => on.onSystem(system.value.trim()));
  const fields = Object.keys(SAMPLING).map((name) =>
    numberField(name, now.settings[name] ?? "", on.onSetting),
  );
  const reset = make("button", { type: "button", id: "reset", textContent: text("settings.reset") });
  reset.addEventListener("click", () => {
    for (const name of Object.keys(SAMPLING)) on.onSetting(name, (at(name).value = ""));
  });
  const removeAll = make("button", { type: "button", className: "danger", textContent: text("delete.all") });
  removeAll.addEventListener("click", on.onDeleteAll);
  open(
    "settings",
    text("settings"),
    group("conversation", labelled(system, text("settings.system"), text("settings.system.about"))),
    group(
      "sampling",
      make("p", { className: "quiet", textContent: text("settings.sampling.about") }),
      make("div", { className: "fields" }, ...fields),
      reset,
    ),
    group(
      "page",
      make(
        "div",
        { className: "fields" },
        choice("language", LANGUAGES, currentLanguage(), on.onLanguage),
        choice("theme", themes(), now.theme, on.onTheme),
      ),
      removeAll,
    ),
  );
}

function group(name, ...content) {
  return make("section", {}, make("h3", { textContent: text(`settings.${name}`) }), ...content);
}

function labelled(field, label, about = "") {
  const name = make("label", { htmlFor: field.id, textContent: label });
  const hint = make("p", { id: `${field.id}-about`, className: "quiet", textContent: about });
  if (about) field.setAttribute("aria-describedby", hint.id);
  return make("div", { className: "field" }, name, field, ...(about ? [hint] : []));
}

/** The field of a sampling setting; a fault is told below it, and not kept. */
function numberField(name, value, keep) {
  const { least, most, step } = SAMPLING[name];
  const field = make("input", {
    id: name,
    type: "number",
    min: least,
    max: most,
    step: step === 1 ? 1 : "any",
    value,
  });
  field.placeholder = text("settings.model-choice");
  const box = labelled(field, text(`settings.${name}`), text(`settings.${name}.about`));
  const hint = box.lastChild;
  field.addEventListener("input", () => {
    const isEmpty = field.value === "" && !field.validity.badInput;
    const fault = isEmpty ? null : faultOf(name, field.value);
    field.setAttribute("aria-invalid", String(Boolean(fault)));
    hint.classList.toggle("bad", Boolean(fault));
    hint.textContent = fault ? faultText(fault) : text(`settings.${name}.about`);
    if (!fault) keep(name, field.value);
  });
  return box;
}

/** The text of a fault that faultOf found. */
export function faultText({ key, values }) {
  if (!values.expected) return text(key, values);
  return text(key, { ...values, expected: text(values.expected.key, values.expected.values) });
}

function choice(id, names, value, keep) {
  const options = Object.entries(names).map(([name, label]) =>
    make("option", { value: name, textContent: label }),
  );
  const select = make("select", { id }, ...options);
  select.value = value;
  select.addEventListener("change", () => keep(select.value));
  return labelled(select, text(`settings.${id}`));
}

function themes() {
  return Object.fromEntries(THEMES.map((name) => [name, text(`settings.theme.${name}`)]));
}

/** Shows the field of the schema; `keep` gets a text that is JSON or empty. */
export function openSchema(value, keep) {
  const field = make("textarea", {
    id: "schema-text",
    rows: 12,
    value,
    spellcheck: false,
    className: "mono",
  });
  const box = labelled(field, text("schema.label"), text("schema.about"));
  const hint = box.lastChild;
  const example = make("button", { type: "button", textContent: text("schema.example") });
  const clear = make("button", { type: "button", textContent: text("schema.clear") });
  const apply = make("button", { type: "submit", className: "primary", textContent: text("apply") });
  const form = make("form", {}, box, make("div", { className: "row" }, example, clear, apply));
  const dialog = open("schema", text("schema.title"), form);
  example.addEventListener("click", () => (field.value = JSON.stringify(EXAMPLE, null, 2)));
  clear.addEventListener("click", () => (field.value = ""));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    const fault = jsonFault(field.value);
    hint.classList.toggle("bad", Boolean(fault));
    if (fault) return (hint.textContent = text("schema.fault", { why: fault }));
    keep(field.value.trim());
    dialog.close();
  });
}

function jsonFault(words) {
  try {
    if (words.trim()) JSON.parse(words);
    return null;
  } catch (error) {
    return error.message;
  }
}

/** Shows the shortcuts. */
export function openHelp() {
  const rows = SHORTCUTS.map(({ keys, does }) => {
    const caps = keys.flatMap((key, i) => [
      ...(i ? [" + "] : []),
      make("kbd", { textContent: keyName(key) }),
    ]);
    return [make("dt", {}, ...caps), make("dd", { textContent: text(does) })];
  });
  const href = new URL("../licences.txt", import.meta.url).href;
  const licences = make("a", { href, target: "_blank", textContent: text("help.licences") });
  open("help", text("help"), make("dl", { className: "shortcuts" }, ...rows.flat()), make("p", {}, licences));
}

function keyName(key) {
  return ["Enter", "Shift", "Esc", "Alt", "Up"].includes(key) ? text(`key.${key}`) : key;
}
