// Elements of the glass box: buttons, fields and sortable tables.

import { text } from "./texts.js";

/** An element with properties and children. */
export function element(tag, properties = {}, ...children) {
  const made = Object.assign(document.createElement(tag), properties);
  made.append(...children);
  return made;
}

/** A button named by a key of the texts. */
export function button(key, act, className = "") {
  const made = element("button", { type: "button", className, textContent: text(key) });
  made.addEventListener("click", act);
  return made;
}

/** A labelled field for a whole number. */
export function numberField(id, key, value, most) {
  const field = element("input", { id, type: "number", min: 0, max: most, value });
  return { field, label: element("label", { htmlFor: id }, text(key), " ", field) };
}

/**
 * A table whose heads sort it.
 * @param {string} caption
 * @param {string[]} keys of the heads' texts
 * @param {{cells: (string | Node)[], values: (string | number | null)[]}[]} rows `values` order the rows
 */
export function table(caption, keys, rows) {
  const body = element("tbody");
  const heads = keys.map((key) => element("th", { scope: "col" }, button(key, () => sort(key), "sort")));
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
  const whole = element("table", {}, element("caption", {}, caption),
    element("thead", {}, element("tr", {}, ...heads)), body);
  const how = { className: "glass-scroll", tabIndex: 0, role: "region", ariaLabel: caption };
  return element("div", how, whole);
}

function lineOf(cells, values) {
  const made = cells.map((cell, i) => {
    const className = typeof values[i] === "number" ? "number" : "";
    return element(i ? "td" : "th", { className, ...(i ? {} : { scope: "row" }) }, cell);
  });
  return element("tr", {}, ...made);
}

/** Order of two values; null, which is unknown, comes first. */
function compared(a, b) {
  if (a === null || b === null) return Number(a !== null) - Number(b !== null);
  return typeof a === "number" ? a - b : String(a).localeCompare(String(b));
}

/** A button that copies a report, and the line that tells of it. */
export function copyButton(report) {
  const told = element("span", { role: "status", className: "quiet" });
  const copy = button("copy", async () => {
    try {
      await navigator.clipboard.writeText(report);
      told.textContent = text("copied");
    } catch {
      told.textContent = text("copy.refused");
    }
  });
  const shown = element("pre", { className: "report", tabIndex: 0 }, report);
  return element("div", {}, element("p", {}, copy, " ", told), shown);
}
