// The live panel: the server's present load, once a second while the page is visible.

import { getJson } from "./api.js";
import { at } from "./conversation.js";

const EVERY_MS = 1000;
const LOST_MS = 5000; // more, while the server does not answer
const N_POINTS = 60; // of the curve of tokens a second
const UNITS = ["bytes", "kB", "MB", "GB", "TB"];
const NO_FIGURES = {
  401: "The server wants a key for its figures.",
  403: "This key may not read the server's figures.",
  404: "This server offers no figures.",
  0: "The server does not answer.",
};
const curves = new Map(); // model -> tokens a second, the oldest first
let shown = "";
let isWatching = false;

/** Polls until the server refuses; call it again after a change of the key. */
export async function watch() {
  if (isWatching) return;
  isWatching = true;
  while (document.visibilityState !== "visible" || (await update())) await pause(EVERY_MS);
  isWatching = false;
}

/** Shows the present load. Returns false if the server refuses to tell it. */
async function update() {
  try {
    const { models } = await getJson("v1/stats");
    show(models.map(facts));
    return true;
  } catch (error) {
    say(NO_FIGURES[error.status] ?? error.message);
    if (error.status === 0) await pause(LOST_MS);
    return !(error.status >= 400 && error.status < 500);
  }
}

const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

/** The figures that the panel shows, from the server's object of one model. */
function facts({ id, n_running, n_waiting, tokens_per_second: rates, kv_bytes: kv, steps }) {
  return { name: id, running: n_running, waiting: n_waiting, rate: rates.answer, kv, steps };
}

function show(models) {
  for (const { name, rate } of models) addPoint(name, rate);
  const sum = (field) => models.reduce((total, model) => total + model[field], 0);
  const line = [`${sum("running")} running`, `${sum("waiting")} waiting`, `${round(sum("rate"))} tok/s`];
  at("load-line").textContent = line.join(" · ");
  at("load-note").hidden = true;
  const now = JSON.stringify([models, [...curves]]);
  if (now === shown) return; // an unchanged panel keeps the user's selection
  shown = now;
  at("load-models").replaceChildren(...models.map(section));
}

function say(text) {
  at("load-line").textContent = "no figures";
  at("load-note").textContent = text;
  at("load-note").hidden = false;
  at("load-models").replaceChildren();
  shown = "";
}

function addPoint(name, rate) {
  const points = curves.get(name) ?? [];
  curves.set(name, [...points, rate].slice(-N_POINTS));
}

/** One model's figures. */
function section({ name, running, waiting, rate, kv, steps }) {
  const list = make("dl", {}, [
    ...fact("Running", running),
    ...fact("Waiting", waiting),
    ...fact("Tokens a second", round(rate), curve(curves.get(name))),
    ...fact("KV cache held", `${size(kv.held)} of ${size(kv.total)}`),
    ...fact("Cached prefixes", size(kv.cached), bar(kv)),
  ]);
  return make("section", { className: "model" }, [make("h2", {}, [name]), list, table(steps)]);
}

function fact(name, value, drawing) {
  const pair = [make("dt", {}, [name]), make("dd", {}, [String(value)])];
  return drawing ? [...pair, make("dd", { className: "drawing" }, [drawing])] : pair;
}

/** Times of the latest steps by program. */
function table(steps) {
  const rows = Object.entries(steps).filter(([, times]) => times.n !== 0);
  if (!rows.length) return "";
  const head = make("tr", {}, ["Step", "p50", "p99"].map((text) => make("th", { scope: "col" }, [text])));
  const body = rows.map(([program, { p50_ms: median, p99_ms: most }]) =>
    make("tr", {}, [
      make("th", { scope: "row" }, [program]),
      ...[median, most].map((ms) => make("td", {}, [`${round(ms)} ms`])),
    ]),
  );
  return make("table", {}, [make("thead", {}, [head]), make("tbody", {}, body)]);
}

/** The last minute's rates as a curve; decoration, since the number stands beside it. */
function curve(points) {
  const top = Math.max(...points, 1);
  const x = (i) => (100 * (N_POINTS - points.length + i)) / (N_POINTS - 1);
  const y = (value) => 23 - (22 * value) / top;
  const line = points.map((value, i) => `${x(i).toFixed(1)},${y(value).toFixed(1)}`).join(" ");
  const area = `${x(0).toFixed(1)},24 ${line} 100,24`;
  return picture("curve", 24, [draw("polygon", { points: area }), draw("polyline", { points: line })]);
}

/** Bytes held and bytes cached, as shares of all. */
function bar({ held, cached, total }) {
  const share = (bytes) => (total ? (100 * bytes) / total : 0);
  return picture("bar", 6, [
    draw("rect", { class: "held", width: share(held), height: 6 }),
    draw("rect", { class: "cached", x: share(held), width: share(cached), height: 6 }),
  ]);
}

function picture(name, height, shapes) {
  const viewBox = `0 0 100 ${height}`;
  const root = draw("svg", { class: name, viewBox, preserveAspectRatio: "none", "aria-hidden": "true" });
  root.append(...shapes);
  return root;
}

function draw(tag, attributes) {
  const shape = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) shape.setAttribute(name, value);
  return shape;
}

function make(tag, fields, children) {
  const element = Object.assign(document.createElement(tag), fields);
  element.append(...children);
  return element;
}

function size(bytes) {
  const power = bytes > 0 ? Math.min(Math.floor(Math.log10(bytes) / 3), UNITS.length - 1) : 0;
  return `${round(bytes / 1000 ** power)} ${UNITS[power]}`;
}

/** Three digits of a small number, no decimals of a large one. */
function round(value) {
  return value >= 100 ? Math.round(value).toLocaleString("en") : String(Number(value.toPrecision(3)));
}
