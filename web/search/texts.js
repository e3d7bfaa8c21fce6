// Texts of the search page in the visitor's language; `{name}` stands for a value.

import { preferredLanguage } from "../chat/texts.js";
import { EN } from "./texts/en.js";

const LOAD = { de: () => import("./texts/de.js"), fr: () => import("./texts/fr.js") };

let table = EN;
let language = "en";

/** Takes the language that the chat uses, and shows its texts. */
export async function useTexts() {
  const name = preferredLanguage();
  table = { ...EN, ...(await LOAD[name]?.())?.default };
  language = name;
  document.documentElement.lang = name;
  document.title = text("title");
  for (const element of document.querySelectorAll("[data-text]")) {
    element.textContent = text(element.dataset.text);
  }
  for (const element of document.querySelectorAll("[data-placeholder]")) {
    element.placeholder = text(element.dataset.placeholder);
  }
}

/** @param {string} key @param {Record<string, unknown>} [values] */
export function text(key, values = {}) {
  const found = table[key];
  if (found === undefined) throw new Error(`no text '${key}'`);
  return found.replace(/\{(\w+)\}/g, (whole, name) => String(values[name] ?? whole));
}

/** A number as the language writes it. */
export function formatted(number, digits = 0) {
  return number.toLocaleString(language, { minimumFractionDigits: digits, maximumFractionDigits: digits });
}
