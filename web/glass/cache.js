// The KV cache by pages: state groups, their units by state, and the pages of each session's prefix.

import { make } from "../elements.js";
import { button, table } from "./elements.js";
import { bytes, whole } from "./numbers.js";
import { text } from "./texts.js";

const STATES = ["held", "shared", "cached", "free"];
const HEADS = ["group", "kv_type", "page", ...STATES, "total", "bytes"];
const MOST_DRAWN = 2048; // units of a group's map

/** @param {HTMLElement} at @param {import("./glass.js").Looked} looked */
export async function showCache(at, { llm, attempt }) {
  const found = make("div");
  const show = async () => found.replaceChildren(...view(await llm.examine("cache")));
  at.replaceChildren(button("refresh", () => attempt(show)), found);
  await show();
}

function view({ groups, sessions, bytes: n, evicted }) {
  const summary = text("cache.summary", { bytes: bytes(n), evicted: whole(evicted) });
  const rows = groups.map((group) => {
    const counts = STATES.map((state) => group.units.filter((unit) => unit === state).length);
    const total = group.units.length;
    const page = `${whole(group.unit_rows)} × ${bytes(group.unit_bytes / group.unit_rows)}`;
    const n = total * group.unit_bytes;
    return {
      cells: [group.name, group.kv_type, page, ...counts.map(whole), whole(total), bytes(n)],
      values: [group.name, group.kv_type, group.unit_bytes, ...counts, total, n],
    };
  });
  return [make("p", {}, summary), table(text("cache"), HEADS, rows),
    ...groups.filter(({ units }) => units.length > 1).map((group) => map(group, sessions)),
    ...sessions.map(({ rows: n, units }) => make("p", { className: "quiet" }, text("cache.session", {
      rows: whole(n), pages: Object.values(units).map(({ length }) => length).join(" + "),
    })))];
}

/** A square per unit, coloured by its state; the units of sessions' prefixes have a border. */
function map({ name, units }, sessions) {
  const own = new Set(sessions.flatMap(({ units: held }) => held[name] ?? []));
  const squares = units.slice(0, MOST_DRAWN).map((state, i) =>
    make("span", { className: `unit ${state}${own.has(i + 1) ? " own" : ""}`,
      title: `${i + 1}: ${text(state)}` }));
  const label = STATES.map((state) =>
    `${text(state)}: ${units.filter((unit) => unit === state).length}`).join(", ");
  const legend = STATES.flatMap((state) =>
    [make("span", { className: `unit ${state}`, ariaHidden: "true" }), ` ${text(state)} `]);
  const drawn = make("div", { className: "units", role: "img" }, ...squares);
  drawn.ariaLabel = `${name}: ${label}`;
  return make("figure", {}, drawn, make("figcaption", {}, `${name}: `, ...legend));
}
