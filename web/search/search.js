// The search page: a model of the visitor's embeds the sentences, and a query ranks them by meaning.

import { given, kept } from "../chat/kept.js";
import { faultOf, loadOptions } from "../chat/settings.js";
import { at, make } from "../elements.js";
import { keepOffline, useNewest } from "../offline.js";
import { Index } from "./index.js";
import { sentences } from "./sentences.js";
import { formatted, text, useTexts } from "./texts.js";

const SETTINGS = ["backend", "adapter", "threads", "activations"]; // of the address
const LOAD_SHARE = 0.3; // of the progress bar; the embeddings have the rest
const REST_MS = 150; // after a key, before the query is embedded

document.documentElement.dataset.theme = kept("theme", "system");
await useNewest();
await useTexts();

const all = sentences();
let index = null;
let opening = null; // AbortController of the model that was opened last
let asked = 0; // number of the last query
let state = "empty";

/** Interface for tests and the console. */
window.camelidSearch = {
  get state() {
    return state;
  },
  sentences: () => all,
  search: (query, most) => index.search(query, most),
};

/** Loads a model in place of the last. */
async function open(file) {
  opening?.abort();
  const mine = (opening = new AbortController());
  asked++; // the closed index fails a query that runs
  void index?.close();
  index = null;
  begin(file.name);
  try {
    index = await Index.made(file, all, optionsOf(mine), (done, total) => {
      if (mine === opening) showEmbedding(done, total);
    });
    ready(index.info);
  } catch (error) {
    if (mine === opening) fail(error.message);
  }
}

function optionsOf(mine) {
  const onProgress = ({ what, done, total }) => {
    if (mine === opening && what === "model") at("progress").value = total ? (done / total) * LOAD_SHARE : 0;
  };
  return { ...loadOptions(given), onProgress, signal: mine.signal };
}

function begin(name) {
  show("loading", text("loading", { name }));
  at("progress").value = 0;
  at("problem").hidden = true;
  at("note").hidden = true;
  showResults([]);
}

/** Screen readers announce the begin and the end of the embeddings only: the figures change too often. */
function showEmbedding(done, total) {
  at("detail").textContent = text("embedding", { done: formatted(done), total: formatted(total) });
  at("progress").value = LOAD_SHARE + ((1 - LOAD_SHARE) * done) / total;
}

function ready({ model, backend, device, why }) {
  show("ready", text("ready", { model, backend, device, n: formatted(all.length) }));
  at("note").textContent = why ? text("processor", { why }) : "";
  at("note").hidden = !why;
  void keepOffline();
  at("query").focus();
  void answer();
}

function fail(message, hint = text("hint")) {
  show("failed", text("failed"));
  at("problem-text").textContent = message;
  at("problem-hint").textContent = hint;
  at("problem").hidden = false;
}

function show(next, line) {
  state = next;
  at("status").dataset.state = next;
  at("status-text").textContent = line;
  at("detail").textContent = "";
  at("query").disabled = next !== "ready";
}

/** Ranks the sentences for the query in the box; a later query wins. */
async function answer() {
  const mine = ++asked;
  const query = at("query").value.trim();
  if (!query || !index) return showResults([]);
  try {
    const found = await index.search(query);
    if (mine === asked) showResults(found);
  } catch (error) {
    if (mine === asked) fail(error.message);
  }
}

function showResults(found) {
  at("results").replaceChildren(...found.map(row));
  at("results-title").hidden = !found.length;
  at("found").textContent = found.length ? text("found", { n: formatted(found.length) }) : "";
}

function row({ sentence, score }) {
  const value = formatted(score, 3);
  const bar = make("meter", { min: 0, max: 1, value: Math.max(score, 0), className: "bar" });
  bar.setAttribute("aria-label", text("score", { score: value }));
  return make("li", {}, make("p", { textContent: sentence }), bar, make("span", { textContent: value }));
}

at("about").textContent = text("about", { n: formatted(all.length) });
show("empty", text("empty"));
at("file").addEventListener("change", ({ target }) => {
  const [file] = target.files;
  target.value = ""; // the same file may be opened again
  if (file) void open(file);
});
at("form").addEventListener("submit", (event) => (event.preventDefault(), void answer()));
at("query").addEventListener("input", () => {
  clearTimeout(answer.timer);
  answer.timer = setTimeout(() => void answer(), REST_MS);
});
const wrong = SETTINGS.find((name) => name in given && faultOf(name, given[name]));
if (wrong) fail(text("setting", { name: wrong, value: given[wrong] }), "");
else at("file").disabled = false;
