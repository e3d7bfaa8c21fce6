// The page's texts in the visitor's language. A language is one file in texts/ and one row of LANGUAGES.

import { kept } from "./kept.js";
import { Lazy } from "./lazy.js";
import { EN } from "./texts/en.js";

export const LANGUAGES = { en: "English", de: "Deutsch", fr: "Français" };
const TABLES = Object.fromEntries(
  Object.keys(LANGUAGES).map((name) => [name, new Lazy((again) => import(`./texts/${name}.js${again}`))]),
);

let table = EN;
let language = "en";

/** The language of the page: that of an earlier choice, else the browser's first that the page has. */
export function preferredLanguage() {
  const wanted = [kept("language", ""), ...navigator.languages].filter(Boolean);
  const names = wanted.map((name) => name.slice(0, 2).toLowerCase());
  return names.find((name) => Object.hasOwn(LANGUAGES, name)) ?? "en";
}

export function currentLanguage() {
  return language;
}

/** Loads a language and shows it in the whole page. */
export async function useLanguage(name) {
  table = name === "en" ? EN : { ...EN, ...(await TABLES[name].load()).default };
  language = name;
  document.documentElement.lang = name;
  applyTexts(document, text);
}

/**
 * A text by its key; `{name}` stands for a value.
 * @param {string} key
 * @param {Record<string, unknown>} values
 */
export function text(key, values = {}) {
  return textIn(table, key, values);
}

/** As `text`, of another table. */
export function textIn(texts, key, values = {}) {
  const found = texts[key];
  if (found === undefined) throw new Error(`no text '${key}'`);
  return found.replace(/\{(\w+)\}/g, (whole, name) => String(values[name] ?? whole));
}

/** Sets the texts of elements with data-text, data-label (name and tooltip) and data-placeholder. */
export function applyTexts(root, text) {
  for (const element of root.querySelectorAll("[data-text]"))
    element.textContent = text(element.dataset.text);
  for (const element of root.querySelectorAll("[data-label]")) {
    element.setAttribute("aria-label", text(element.dataset.label));
    if (element.matches("button")) element.title = text(element.dataset.label);
  }
  for (const element of root.querySelectorAll("[data-placeholder]")) {
    element.placeholder = text(element.dataset.placeholder);
  }
}

/** A number as the language writes it. */
export function formatted(number, digits = 0) {
  return number.toLocaleString(language, { minimumFractionDigits: digits, maximumFractionDigits: digits });
}
