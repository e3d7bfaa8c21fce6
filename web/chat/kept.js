// The visitor's choices, kept in this browser; settings in the page's address win over them.

import { faultOf, SAMPLING } from "./settings.js";

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

/** Keeps a sampling setting that the visitor changed; an empty one leaves the choice to the model's file. */
export function keepSetting(name, value) {
  const { [name]: _, ...others } = keptSettings();
  keep("settings", value === "" ? others : { ...others, [name]: value });
}

function keptSettings() {
  const isSetting = ([name, value]) => Object.hasOwn(SAMPLING, name) && !faultOf(name, value);
  return Object.fromEntries(Object.entries(kept("settings", {})).filter(isSetting));
}

/** All settings: kept ones, then those of the address. */
export function allSettings() {
  return { model: "cria.gguf", ...keptSettings(), ...given };
}
