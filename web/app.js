// The page: a conversation with a model, over web/client. Model code runs in the worker only.

import { load } from "./client/camelid.js";
import {
  addNote, addTurn, at, followEnd, hideProblem, listenToPrompt, showProblem,
} from "./conversation.js";

const DEFAULTS = {
  model: "cria.gguf",
  backend: "",
  adapter: "",
  threads: "",
  temperature: "0",
  max_tokens: "256",
  seed: "",
};
// Sampling options of each request: form and range. A seed must be exact as a JavaScript number.
const WHOLE = /^\d+$/;
const NUMBERS = {
  temperature: { form: /^\d*\.?\d+$/, least: 0, most: Infinity, expected: "a number from 0 on" },
  max_tokens: { form: WHOLE, least: 1, most: Number.MAX_SAFE_INTEGER, expected: "a whole number from 1 on" },
  seed: { form: WHOLE, least: 0, most: Number.MAX_SAFE_INTEGER, expected: "a whole number up to 2^53 - 1" },
};
/** Form and range of settings for loading. */
const LOADING = {
  backend: { form: /^(auto|webgpu|cpu)$/, expected: "auto, webgpu or cpu" },
  threads: { form: WHOLE, least: 1, most: 1024, expected: "a whole number from 1 to 1024" },
};
const CHECKS = { ...NUMBERS, ...LOADING };
const SESSION_FILE = "session.camelid";
// Painting takes longer than a small model's step and may run on the same cores, so it is throttled.
const PAINT_MS = 60;
const AGAIN = "Reload the page to try again, or open another file.";

const given = Object.fromEntries(new URLSearchParams(location.search));
const settings = { ...DEFAULTS, ...given };
let loading = null; // AbortController of the model that is being loaded
let llm = null;
let session = null; // the conversation
let state = "loading";
let answer = null; // the answer being streamed: elements, text, stream
const parts = { python: 0, model: 0, stages: 0 }; // progress of loading, each from 0 to 1

/** Interface for tests and the console. */
window.camelid = {
  get state() {
    return state;
  },
  /** Sends a prompt outside the conversation; resolves to {text, token_ids, finish_reason, ...}. */
  ask: (prompt) => send(prompt, true),
  /** Sends a prompt as the next turn of the conversation. */
  say: (prompt) => send(prompt, false),
  stop,
};

/** Loads a model in a new worker; ends the old worker, whose answer fails. */
async function start(model, name) {
  loading?.abort();
  llm?.close();
  Object.assign(parts, { python: 0, model: 0, stages: 0 });
  setState("loading", `Loading ${name}`);
  clearConversation();
  showNote("");
  const { signal } = loading = new AbortController();
  try {
    const loaded = await load(model, { ...loadOptions(), onProgress: progress, signal });
    if (signal.aborted) return loaded.close();
    llm = loaded;
    session = await newSession();
    ready(llm.info);
  } catch (error) {
    if (!signal.aborted) fail(error.message, AGAIN);
  }
}

/** A new conversation; its turns have the page's options. */
function newSession() {
  return llm.session({ overflow: "shift", ...numbers(DEFAULTS) });
}

/** Options for loading. `adapter` implies backend webgpu unless the address names a backend. */
function loadOptions() {
  const { backend, adapter, threads } = settings;
  const options = { backend: backend || (adapter ? "webgpu" : "auto"), adapter };
  return threads ? { ...options, threads: Number(threads) } : options;
}

function progress({ what, done: n, total, text }) {
  parts[what] = total ? n / total : 0;
  if (text) setState("loading", `${text[0].toUpperCase()}${text.slice(1)}`);
  else if (parts.model === 1) setState("loading", "Starting Python");
  else if (what === "model") setState("loading", `Fetching the model: ${share(n, total)}`);
  else setState("loading"); // updates the progress bar
}

function ready({ model, backend, device, why, context }) {
  setState("ready", `${model} · ${backend} on ${device} · context ${context.toLocaleString("en")}`);
  showNote(why && `The model runs on the CPU, not on WebGPU: ${why}.`);
  at("starters").hidden = at("transcript").children.length > 0;
  if (matchMedia("(hover: hover)").matches) at("prompt").focus();
}

function token({ text }) {
  answer.text += text;
  answer.n += 1;
  answer.last = performance.now();
  answer.first ??= answer.last;
  answer.painting ??= setTimeout(paint, PAINT_MS);
}

/** Shows the text received so far. */
function paint() {
  const { element, text, n, first, last } = answer;
  answer.painting = null;
  element.lastChild.textContent = text;
  showFigures(n, n > 1 ? (1000 * (n - 1)) / (last - first) : NaN);
  followEnd();
}

function done(result) {
  const { element } = answer;
  element.lastChild.textContent = result.text;
  const note = { length: "Cut off at the token limit.", cancelled: "Stopped." }[result.finish_reason];
  if (note) addNote(element, note);
  showFigures(result.token_ids.length, result.timings.decode_tps, result);
  finishAnswer();
}

/** Starts the download of the session's file. */
function download(blob) {
  const link = Object.assign(document.createElement("a"), { href: URL.createObjectURL(blob) });
  link.download = SESSION_FILE;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
}

/** Shows the conversation of an opened session. */
function opened({ messages, note, n_tokens: tokens, cached_rows: rows }) {
  setState("ready"); // before showConversation, which reads the state
  clearConversation();
  for (const { role, content, tool_calls: calls } of messages) {
    const called = (calls ?? []).map(({ function: f }) => `${f.name}(${f.arguments})`);
    addTurn(role, [textOf(content), ...called].filter(Boolean).join("\n"));
  }
  showConversation(messages.length > 0);
  at("figures").textContent = `session of ${tokens} tokens, ${rows} cached`;
  if (note) showProblem(`The session was opened, but ${note}.`, "");
}

/** Handles an error. A failed request leaves the session unchanged; a lost device needs a reload. */
function failed({ name, message }) {
  if (answer) {
    answer.element.remove();
    answer.question.remove();
    at("prompt").value ||= answer.prompt;
    finishAnswer();
  }
  if (name === "DeviceLostError") return fail(message, AGAIN);
  setState("ready");
  showProblem(message, "");
}

/** Sends a prompt as the next turn, or `alone` outside the conversation; resolves to the answer. */
async function send(prompt, alone) {
  if (state !== "ready") throw new Error(`the page is ${state}, not ready`);
  hideProblem();
  showConversation(true);
  const question = addTurn("user", prompt);
  const element = addTurn("assistant", "");
  element.setAttribute("aria-busy", "true");
  setState("busy");
  const own = answer = { element, question, prompt, text: "", n: 0, isStopped: false };
  try {
    const result = await streamed(alone ? await newSession() : session, prompt);
    if (own === answer) done(result);
    return result;
  } catch (error) {
    if (own === answer) failed(error);
    throw error;
  }
}

/** Streams an answer into the transcript. The answer has its figures as fields of its own, too. */
async function streamed(talk, prompt) {
  // Settings in the address apply to every session; other options are the session's own.
  answer.stream = talk.stream(prompt, numbers(given));
  const { stream } = answer;
  if (answer.isStopped) stream.cancel();
  for await (const event of stream) if (answer?.stream === stream) token(event);
  const result = await stream.completion;
  return { ...result, ...result.usage, ...result.timings, n_forgotten: talk.n_forgotten };
}

/** Sampling options that are set, as numbers. Without a seed, the session draws one. */
function numbers(some) {
  const names = Object.keys(NUMBERS).filter((name) => (some[name] ?? "") !== "");
  return Object.fromEntries(names.map((name) => [name, Number(some[name])]));
}

function stop() {
  if (!answer) return;
  answer.isStopped = true;
  answer.stream?.cancel();
}

function finishAnswer() {
  clearTimeout(answer.painting);
  answer.element.removeAttribute("aria-busy");
  answer = null;
  setState("ready");
  followEnd();
}

/** Text of a message content: a string or a list of parts. */
function textOf(content) {
  return Array.isArray(content) ? content.map((part) => part.text).join("") : content;
}

function clearConversation() {
  hideProblem();
  at("transcript").replaceChildren();
  at("figures").textContent = "";
  showConversation(false);
}

/** Shows the buttons for a conversation with or without turns. */
function showConversation(hasTurns) {
  at("starters").hidden = hasTurns || state !== "ready";
  at("clear").hidden = !hasTurns;
  at("save").hidden = !hasTurns;
}

function setState(next, text) {
  state = next;
  at("status").dataset.state = next;
  if (text) at("status-text").textContent = text;
  at("send").textContent = next === "busy" ? "Stop" : "Send";
  at("send").disabled = next !== "ready" && next !== "busy";
  for (const id of ["clear", "save", "session"]) at(id).disabled = next !== "ready";
  at("progress").value = (parts.python + parts.model + parts.stages) / 3;
}

function showFigures(n, tps, result) {
  const words = [`${n} ${n === 1 ? "token" : "tokens"}`];
  if (Number.isFinite(tps)) words.push(`${tps.toFixed(1)} tok/s`);
  if (result) {
    const { ttft_s: seconds, prompt_tokens: length, cached_tokens: cached, n_forgotten: lost } = result;
    const known = cached ? `, ${cached} cached` : "";
    words.push(`first after ${seconds.toFixed(2)} s`, `prompt of ${length}${known}`);
    if (lost) words.push(`the first ${lost} messages no longer fit`);
  }
  at("figures").textContent = words.join(" · ");
}

function fail(message, hint) {
  setState("failed", "Not ready");
  at("starters").hidden = true;
  showProblem(message, hint);
}

/** Shows a line below the status; an empty text hides it. */
function showNote(text) {
  at("note").textContent = text;
  at("note").hidden = !text;
}

function share(bytes, total) {
  return `${(bytes / 1e6).toFixed(1)} of ${(total / 1e6).toFixed(1)} MB`;
}

async function submitPrompt(text) {
  const prompt = text.trim();
  if (!prompt || state !== "ready") return;
  at("prompt").value = "";
  await send(prompt, false).catch(() => {}); // error() has shown the problem
}

listenToPrompt({ isBusy: () => state === "busy", submit: submitPrompt, stop });

at("clear").addEventListener("click", async () => {
  clearConversation();
  await session.reset();
  at("prompt").focus();
});

at("save").addEventListener("click", () => session.save().then(download, failed));

at("session").addEventListener("change", async ({ target }) => {
  const [file] = target.files;
  target.value = ""; // lets the user choose the same file again
  if (!file || state !== "ready") return;
  setState("loading");
  try {
    opened(session = await llm.restore(file));
  } catch (error) {
    failed(error);
  }
});

at("file").addEventListener("change", ({ target }) => {
  const [file] = target.files;
  if (file) start(file, file.name);
});

/** First invalid setting in the address: [problem, hint], or null. */
function flaw() {
  for (const [name, value] of Object.entries(given)) {
    if (!Object.hasOwn(DEFAULTS, name)) {
      const known = Object.keys(DEFAULTS).join(", ");
      return [`The address has an unknown setting '${name}'.`, `Known settings: ${known}.`];
    }
    if (!Object.hasOwn(CHECKS, name)) continue;
    const { form, least, most, expected } = CHECKS[name];
    const isWithin = least === undefined || (Number(value) >= least && Number(value) <= most);
    if (form.test(value) && isWithin) continue;
    return [`The address sets ${name} to '${value}'.`, `Expected ${expected}, or no setting ${name}.`];
  }
  return null;
}

const wrong = flaw();
at("file").disabled = Boolean(wrong); // a file would use the same settings
if (wrong) fail(...wrong);
else start(new URL(settings.model, location.href).href, settings.model);
