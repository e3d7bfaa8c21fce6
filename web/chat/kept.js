// The visitor's choices, kept in this browser; settings in the page's address win over them.

import { ALL } from "./settings.js";

const PREFIX = "camelid.";

/** A kept value, or `otherwise`; storage may be refused. */
export function kept(name, otherwise) {
  try {
    return JSON.parse(localStorage.getItem(PREFIX + name)) ?? otherwise;
  } catch {
    return otherwise;
  }
}

export function keep(name, value) {
  try {
    localStorage.setItem(PREFIX + name, JSON.stringify(value));
  } catch {
    // storage refused or full: the choice ends with the tab
  }
}

/** Settings in the address, by name, known or not. */
export const given = Object.fromEntries(new URLSearchParams(location.search));

/** All settings: kept ones, then those of the address. */
export function allSettings() {
  const known = Object.entries(kept("settings", {})).filter(([name]) => name in ALL);
  return { model: "cria.gguf", ...Object.fromEntries(known), ...given };
}
