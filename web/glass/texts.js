// Texts of the glass box in the page's language; `{name}` stands for a value.

import { Lazy } from "../chat/lazy.js";
import { LANGUAGES, textIn } from "../chat/texts.js";

const TABLES = Object.fromEntries(
  Object.keys(LANGUAGES).map((name) => [name, new Lazy((again) => import(`./texts/${name}.js${again}`))]),
);

let table = {};
let current = "en";

/** Loads a language of texts/. */
export async function useTexts(name) {
  table = (await TABLES[name].load()).default;
  current = name;
}

export function language() {
  return current;
}

/** @param {string} key @param {Record<string, unknown>} [values] */
export function text(key, values = {}) {
  return textIn(table, key, values);
}
