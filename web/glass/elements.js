// Elements of the glass box: buttons, fields and sortable tables.

import { make } from "../elements.js";
import { text } from "./texts.js";

/** A button named by a key of the texts. */
export function button(key, act, className = "") {
  const made = make("button", { type: "button", className, textContent: text(key) });
  made.addEventListener("click", act);
  return made;
}

/** A labelled field for a whole number. */
export function numberField(id, key, value, most) {
  const field = make("input", { id, type: "number", min: 0, max: most, value });
  return { field, label: make("label", { htmlFor: id }, text(key), " ", field) };
}

/**
 * A table whose heads sort it.
 * @param {string} caption
 * @param {string[]} keys of the heads' texts
 * @param {{cells: (string | Node)[], values: (string | number | null)[]}[]} rows `values` order the rows
 */
export function table(caption, keys, rows) {
  const body = make("tbody");
  const heads = keys.map((key) => make("th", { scope: "col" }, button(key, () => sort(key), "sort")));
  const made = rows.map(({ cells, values }) => ({ line: lineOf(cells, values), values }));
  const sort = (key) => {
    const at = keys.indexOf(key);
    const isUp = heads[at].ariaSort !== "ascending";
    for (const head of heads) head.removeAttribute("aria-sort");
    heads[at].setAttribute("aria-sort", isUp ? "ascending" : "descending");
    made.sort((a, b) => (isUp ? 1 : -1) * compared(a.values[at], b.values[at]));
    body.append(...made.map(({ line }) => line));
  };
  body.append(...made.map(({ line }) => line));
  const whole = make("table", {}, make("caption", {}, caption),
    make("thead", {}, make("tr", {}, ...heads)), body);
  const how = { className: "glass-scroll", tabIndex: 0, role: "region", ariaLabel: caption };
  return make("div", how, whole);
}

function lineOf(cells, values) {
  const made = cells.map((cell, i) => {
    const className = typeof values[i] === "number" ? "number" : "";
    return make(i ? "td" : "th", { className, ...(i ? {} : { scope: "row" }) }, cell);
  });
  return make("tr", {}, ...made);
}

/** Order of two values; null, which is unknown, comes first. */
function compared(a, b) {
  if (a === null || b === null) return Number(a !== null) - Number(b !== null);
  return typeof a === "number" ? a - b : String(a).localeCompare(String(b));
}

/** A button that copies a report, and the line that tells of it. */
export function copyButton(report) {
  const told = make("span", { role: "status", className: "quiet" });
  const copy = button("copy", async () => {
    try {
      await navigator.clipboard.writeText(report);
      told.textContent = text("copied");
    } catch {
      told.textContent = text("copy.refused");
    }
  });
  const shown = make("pre", { className: "report", tabIndex: 0 }, report);
  return make("div", {}, make("p", {}, copy, " ", told), shown);
}
