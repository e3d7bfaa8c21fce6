// Parity: each recorded case of the gate on this device, against the results of the reference backend.

import { make } from "../elements.js";
import { button, copyButton, table } from "./elements.js";
import { report } from "./report.js";
import { text } from "./texts.js";

const HEADS = ["case", "status", "nmse", "allowed"];

/** @param {HTMLElement} at @param {import("./glass.js").Looked} looked */
export function showParity(at, { llm, attempt }) {
  const found = make("div");
  const bar = make("progress", { max: 1, value: 0, hidden: true, ariaLabel: text("parity") });
  const run = button("parity.run", () => attempt(async () => {
    [run.disabled, bar.hidden] = [true, false];
    found.replaceChildren();
    try {
      const tell = ({ done, total }) => (bar.value = done / total);
      const outcome = await llm.examine("parity", { records: await records() }, tell);
      found.replaceChildren(...view(outcome, llm.info));
    } finally {
      [run.disabled, bar.hidden] = [false, true];
    }
  }), "primary");
  at.replaceChildren(make("p", { className: "quiet" }, text("parity.about")), run, " ", bar, found);
}

async function records() {
  const response = await fetch(new URL("parity.json", import.meta.url)).catch(() => null);
  if (!response?.ok) throw new Error(text("parity.absent"));
  return response.json();
}

function view({ cases, passed, failed, refused }, info) {
  const rows = cases.map((one) => ({
    cells: [one.case, text(one.status), shown(one), one.allowed.toExponential(0)],
    values: [one.case, one.status, one.nmse, one.allowed],
  }));
  const summary = make("p", { role: "status", className: failed ? "bad" : "good" },
    text("parity.summary", { passed, failed, refused }));
  summary.dataset.failed = failed;
  const lines = cases.map((one) => [one.case, one.status, shown(one), one.allowed.toExponential(0)]);
  const told = report("Parity of Camelid's kernels", info, { passed, failed, refused },
    ["case", "status", "NMSE", "allowed"], lines);
  return [summary, table(text("parity"), HEADS, rows), copyButton(told)];
}

function shown({ nmse, reason }) {
  return nmse === null ? reason || "∞" : nmse.toExponential(1);
}
