// The glass box: a dialog with plan, times, KV cache, candidates, parity and a race of the loaded model.

import { loadStyle } from "../chat/lazy.js";
import { make } from "../elements.js";
import { showCache } from "./cache.js";
import { button } from "./elements.js";
import { showParity } from "./parity.js";
import { showPlan } from "./plan.js";
import { showRace } from "./race.js";
import { text, useTexts } from "./texts.js";
import { showTimes } from "./times.js";
import { showTokens } from "./tokens.js";

const STYLE = new URL("glass.css", import.meta.url);
const VIEWS = {
  plan: showPlan,
  times: showTimes,
  cache: showCache,
  tokens: showTokens,
  parity: showParity,
  race: showRace,
};

/**
 * @typedef {object} Looked what the views examine
 * @property {import("../client/llm.js").LLM} llm
 * @property {any} model what `load` took
 * @property {object[]} messages of the open conversation
 * @property {object} options of its requests
 */

/**
 * Shows the glass box in a dialog.
 * @param {HTMLDialogElement} dialog
 * @param {Looked} looked
 * @param {string} language
 */
export async function openGlass(dialog, looked, language) {
  await Promise.all([useTexts(language), loadStyle(STYLE, { isLast: true })]);
  const end = new AbortController();
  dialog.addEventListener("close", () => end.abort(), { once: true });
  dialog.className = "sheet glass";
  dialog.replaceChildren(head(dialog), ...tabs({ ...looked, signal: end.signal }));
  dialog.setAttribute("aria-labelledby", "glass-title");
  if (!dialog.open) dialog.showModal();
}

function head(dialog) {
  const title = make("h2", { id: "glass-title", textContent: text("title") });
  return make("div", { className: "sheet-head" }, title, button("close", () => dialog.close()));
}

/** The list of tabs and their panels; arrow keys move between tabs. A view is made when its tab opens. */
function tabs(looked) {
  const list = make("div", { role: "tablist", ariaLabel: text("title") });
  const pairs = Object.entries(VIEWS).map(([name, show]) => [tab(name), panel(name), show]);
  const choose = (chosen) => {
    for (const [one, its, show] of pairs) {
      const isChosen = one === chosen;
      one.setAttribute("aria-selected", String(isChosen));
      one.tabIndex = isChosen ? 0 : -1;
      its.hidden = !isChosen;
      if (isChosen) void fill(its, show, looked);
    }
    chosen.focus();
  };
  for (const [one] of pairs) one.addEventListener("click", () => choose(one));
  list.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    event.preventDefault();
    const at = pairs.findIndex(([one]) => one === document.activeElement);
    choose(pairs[(at + step + pairs.length) % pairs.length][0]);
  });
  list.append(...pairs.map(([one]) => one));
  queueMicrotask(() => choose(pairs[0][0]));
  return [list, ...pairs.map(([, its]) => its)];
}

function tab(name) {
  const made = make("button", { type: "button", role: "tab", id: `glass-tab-${name}` }, text(name));
  made.setAttribute("aria-controls", `glass-${name}`);
  return made;
}

function panel(name) {
  const made = make("div", { role: "tabpanel", id: `glass-${name}`, tabIndex: 0, hidden: true });
  made.setAttribute("aria-labelledby", `glass-tab-${name}`);
  return made;
}

async function fill(panel, show, looked) {
  if (panel.childElementCount) return;
  const problem = make("p", { className: "glass-problem", role: "alert" });
  const body = make("div");
  panel.append(problem, body);
  const attempt = async (work) => {
    problem.textContent = "";
    try {
      await work();
    } catch (error) {
      if (!looked.signal.aborted) problem.textContent = error.message;
    }
  };
  await attempt(() => show(body, { ...looked, attempt }));
}
