// Texts of the search page in the visitor's language; `{name}` stands for a value.

import { applyTexts, preferredLanguage, textIn } from "../chat/texts.js";
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
  applyTexts(document, text);
}

/** @param {string} key @param {Record<string, unknown>} [values] */
export function text(key, values = {}) {
  return textIn(table, key, values);
}

/** A number as the language writes it. */
export function formatted(number, digits = 0) {
  return number.toLocaleString(language, { minimumFractionDigits: digits, maximumFractionDigits: digits });
}
