// Texts of the models dialog in the page's language, by key; a language is one file in texts/.

import { Lazy } from "../chat/lazy.js";
import { EN } from "./texts/en.js";

const TABLES = Object.fromEntries(
  ["de", "fr"].map((name) => [name, new Lazy((again) => import(`./texts/${name}.js${again}`))]),
);

let table = EN;
let language = "en";

/** Takes the texts of a language, by default the page's; English for a language without a table. */
export async function useLanguage(name = document.documentElement.lang.slice(0, 2)) {
  table = Object.hasOwn(TABLES, name) ? { ...EN, ...(await TABLES[name].load()).default } : EN;
  language = table === EN ? "en" : name;
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
  if (bytes >= 1e9) return text("giga", { n: formatted(bytes / 1e9, 2) });
  return text("mega", { n: formatted(bytes / 1e6, bytes < 1e8 ? 1 : 0) });
}

/** A duration in its largest unit. */
export function duration(seconds) {
  if (seconds < 90) return text("seconds", { n: formatted(Math.ceil(seconds)) });
  if (seconds < 5400) return text("minutes", { n: formatted(Math.ceil(seconds / 60)) });
  return text("hours", { n: formatted(seconds / 3600, 1) });
}

/** A number as the language writes it. */
export function formatted(number, digits = 0) {
  return number.toLocaleString(language, { minimumFractionDigits: digits, maximumFractionDigits: digits });
}
