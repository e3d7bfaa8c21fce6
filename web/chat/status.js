// The page's state as the visitor sees it: lamp, progress of loading, notes, problems, figures.

import { at } from "./elements.js";
import { formatted, text } from "./texts.js";

const parts = { python: 0, model: 0, stages: 0 }; // progress of loading, each from 0 to 1

/** @typedef {"loading" | "ready" | "busy" | "failed"} State */

/** Shows a state; `words` replaces the status line. */
export function showState(state, words) {
  at("status").dataset.state = state;
  if (words) at("status-text").textContent = words;
  at("send").textContent = text(state === "busy" ? "stop" : "send");
  at("send").disabled = state !== "ready" && state !== "busy";
  for (const id of ["save", "session"]) at(id).disabled = state !== "ready";
  at("progress").value = (parts.python + parts.model + parts.stages) / 3;
}

export function beginProgress() {
  Object.assign(parts, { python: 0, model: 0, stages: 0 });
}

/** Shows progress of loading, as `load` of the client tells it. */
export function showProgress({ what, done, total, text: stage }) {
  parts[what] = total ? done / total : 0;
  showState("loading", progressLine(what, done, total, stage));
}

/** Shows how much of the page's own file is read. */
export function showReading(line, share) {
  showState("loading", line);
  at("progress").value = share;
}

function progressLine(what, done, total, stage) {
  if (stage) return `${stage[0].toUpperCase()}${stage.slice(1)}`;
  if (parts.model === 1) return text("loading.python");
  const mega = (bytes) => formatted(bytes / 1e6, 1);
  return what === "model" ? text("loading.bytes", { done: mega(done), total: mega(total) }) : "";
}

/** Shows a loaded model's facts. */
export function readyLine({ model, backend, device, context }) {
  return text("status.ready", { model, backend, device, context: formatted(context) });
}

/** Shows a line below the status; an empty text hides it. */
export function showNote(words) {
  at("note").textContent = words;
  at("note").hidden = !words;
}

export function showProblem(message, hint = "") {
  at("problem-text").textContent = message;
  at("problem-hint").textContent = hint;
  at("problem").hidden = false;
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
