// The plan: the ops of a program with shapes, weights, bytes and dispatches, and each op's kernels as text.

import { make } from "../elements.js";
import { table } from "./elements.js";
import { bytes, number, whole } from "./numbers.js";
import { text } from "./texts.js";

const ENTRIES = ["decode", "mixed"];
const HEADS = ["number", "op", "shapes", "weights", "bytes", "dispatches"];

/** @param {HTMLElement} at @param {import("./glass.js").Looked} looked */
export async function showPlan(at, { llm, attempt }) {
  const choice = make("select", { id: "glass-entry" });
  choice.append(...ENTRIES.map((name) => make("option", { value: name }, text(`entry.${name}`))));
  const label = make("label", { htmlFor: choice.id }, text("entry"), " ", choice);
  const found = make("div");
  at.replaceChildren(label, found);
  const show = async () => {
    const plan = await llm.examine("plan", { entry: choice.value, held: 0 });
    const source = make("div");
    const open = (op) => attempt(() => showSource(source, llm, plan, op));
    found.replaceChildren(summary(plan), planTable(plan, open), source);
  };
  choice.addEventListener("change", () => attempt(show));
  await show();
}

function summary({ ops, dispatches, bytes: n, flops, rows }) {
  const values = {
    ops: whole(ops.length), dispatches: whole(dispatches), bytes: bytes(n), rows: whole(rows),
    flops: number(flops / 1e6),
  };
  return make("p", { className: "quiet" }, text("plan.summary", values));
}

function planTable({ ops, entry }, open) {
  const rows = ops.map((op) => {
    const name = make("button", { type: "button", className: "link" }, op.op);
    name.addEventListener("click", () => open(op));
    const weights = op.weights.map((w) => `${w.name} ${w.type} [${w.shape.join(", ")}]`).join("; ");
    const shapes = op.shapes.join(" ");
    return {
      cells: [String(op.number), name, shapes, weights, bytes(op.bytes), String(op.dispatches)],
      values: [op.number, op.op, shapes, weights, op.bytes, op.dispatches],
    };
  });
  return table(text(`entry.${entry}`), HEADS, rows);
}

async function showSource(at, llm, { entry }, { number: n, op }) {
  const kernels = await llm.examine("source", { entry, number: n });
  const parts = kernels.flatMap(({ name, source }) => [
    make("h4", {}, name),
    source
      ? make("pre", { tabIndex: 0, className: "wgsl" }, source)
      : make("p", { className: "quiet" }, text("source.compiled")),
  ]);
  const title = make("h3", { tabIndex: -1 }, text("source", { number: n, op }));
  at.replaceChildren(title, ...parts);
  title.focus();
}
