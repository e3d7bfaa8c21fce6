// Times: seconds and GB/s of each op of a decode step, measured at a press.

import { make } from "../elements.js";
import { button, numberField, table } from "./elements.js";
import { bytes, gbps, micros, number } from "./numbers.js";
import { text } from "./texts.js";

const HEADS = ["number", "op", "bytes", "time", "gbps", "alike"];

/** @param {HTMLElement} at @param {import("./glass.js").Looked} looked */
export function showTimes(at, { llm, attempt }) {
  const { field, label } = numberField("glass-held", "times.held", 128, llm.info.context - 1);
  const found = make("div", { ariaLive: "polite" });
  const measure = button("times.measure", () => attempt(async () => {
    measure.disabled = true;
    found.replaceChildren(make("p", {}, text("measuring")));
    try {
      const held = Math.min(Number(field.value) || 0, llm.info.context - 1);
      found.replaceChildren(...view(await llm.examine("profile", { held })));
    } catch (error) {
      found.replaceChildren();
      throw error;
    } finally {
      measure.disabled = false;
    }
  }), "primary");
  at.replaceChildren(make("p", { className: "quiet" }, text("times.about")), label, " ", measure, found);
}

function view({ ops, seconds, bytes: n, how, repeats }) {
  const rows = ops.map((op) => ({
    cells: [String(op.number), op.op, bytes(op.bytes), micros(op.seconds), gbps(op.gbps), String(op.alike)],
    values: [op.number, op.op, op.bytes, op.seconds, op.gbps, op.alike],
  }));
  const rate = seconds > 0 ? number(n / seconds / 1e9) : "–";
  const summary = text("times.summary", { time: micros(seconds), bytes: bytes(n), rate });
  const clock = text(`times.${how}`, { repeats });
  return [make("p", {}, summary), make("p", { className: "quiet" }, clock),
    table(text("times"), HEADS, rows)];
}
