// The page's state as the visitor sees it: lamp, progress of loading, notes, problems, figures.

import { at } from "./elements.js";
import { formatted, text } from "./texts.js";

const parts = { python: 0, model: 0, stages: 0 }; // progress of loading, each from 0 to 1

/** @typedef {"loading" | "ready" | "busy" | "failed"} State */

/** Shows a state; `words` replaces the status line, which screen readers announce, so it changes rarely. */
export function showState(state, words) {
  at("status").dataset.state = state;
  if (words && at("status-text").textContent !== words) at("status-text").textContent = words;
  if (state !== "loading") at("status-detail").textContent = "";
  at("send").textContent = text(state === "busy" ? "stop" : "send");
  at("send").disabled = state !== "ready" && state !== "busy";
  for (const id of ["save", "session"]) at(id).disabled = state !== "ready";
  at("progress").value = (parts.python + parts.model + parts.stages) / 3;
}

export function beginProgress() {
  Object.assign(parts, { python: 0, model: 0, stages: 0 });
}

/** Shows an event of `onProgress` of the client's `load`. */
export function showProgress({ what, done, total, text: stage }) {
  parts[what] = total ? done / total : 0;
  showState("loading", phase(stage));
  if (what === "model") showBytes(done, total);
}

/** Shows how much of the page's own file is read. */
export function showReading(line, share) {
  showState("loading", line);
  at("progress").value = share;
}

function phase(stage) {
  if (stage) return `${stage[0].toUpperCase()}${stage.slice(1)}`;
  return text(parts.model === 1 ? "loading.python" : "loading.model");
}

/** Shows the bytes of the model beside the status line, where no screen reader announces them. */
function showBytes(done, total) {
  const mega = (bytes) => formatted(bytes / 1e6, 1);
  const words = text("loading.bytes", { done: mega(done), total: mega(total) });
  at("status-detail").textContent = parts.model === 1 ? "" : words;
}

/** Shows a loaded model's facts. */
export function readyLine({ model, backend, device, context }) {
  return text("status.ready", { model, backend, device, context: formatted(context) });
}

/** Shows a line below the status: `note` about the model, `store-note` about storage; "" hides it. */
export function showNote(words, id = "note") {
  at(id).textContent = words;
  at(id).hidden = !words;
}

export function showProblem(message, hint = "") {
  at("problem-text").textContent = message;
  at("problem-hint").textContent = hint;
  at("problem").hidden = false;
}

/** An error's message, in the page's language if it is of tabs. The `key` of a model's error is its file's. */
export function faultWords({ message, facts }) {
  return String(facts?.key).startsWith("tab.") ? text(facts.key) : message;
}

export function hideProblem() {
  at("problem").hidden = true;
}

/** Shows the figures of an answer so far: tokens and tokens per second. */
export function showFigures(n, rate, result) {
  const words = [text(n === 1 ? "figures.token" : "figures.tokens", { n: formatted(n) })];
  if (Number.isFinite(rate)) words.push(text("figures.rate", { n: formatted(rate, 1) }));
  if (result) words.push(...lastFigures(result));
  at("figures").textContent = words.join(" · ");
}

function lastFigures({ ttft_s: seconds, prompt_tokens: n, cached_tokens: cached, n_forgotten: lost }) {
  const words = [
    text("figures.first", { n: formatted(seconds, 2) }),
    text(cached ? "figures.cached" : "figures.prompt", { n: formatted(n), cached: formatted(cached ?? 0) }),
  ];
  if (lost) words.push(text("figures.forgotten", { n: lost }));
  return words;
}
