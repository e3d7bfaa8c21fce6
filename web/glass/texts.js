// Texts of the glass box in the page's language; `{name}` stands for a value.

let table = {};
let current = "en";

/** Loads a language of texts/. */
export async function useTexts(name) {
  table = (await import(`./texts/${name}.js`)).default;
  current = name;
}

export function language() {
  return current;
}

/** @param {string} key @param {Record<string, unknown>} [values] */
export function text(key, values = {}) {
  const found = table[key];
  if (found === undefined) throw new Error(`no text '${key}'`);
  return found.replace(/\{(\w+)\}/g, (whole, name) => String(values[name] ?? whole));
}
