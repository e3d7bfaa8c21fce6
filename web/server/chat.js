// The server's chat page: a conversation through /v1/chat/completions, and the key where one is wanted.

import { ApiError, forgetKey, getJson, hasKey, setKey, streamChat } from "./api.js";
import { markdown } from "./markdown.js";
import { watch } from "./panel.js";
import {
  addNote, addTurn, at, followEnd, hideProblem, listenToPrompt, showProblem,
} from "./conversation.js";

const PAINT_MS = 60;
const END_PX = 80; // a reader this close to the end follows the answer
const NOTES = { length: "Cut off at the token limit.", stopped: "Stopped.", broken: "Incomplete." };
const BROKEN = "The connection ended before the answer did.";
const RELOAD = "Reload the page to try again.";
// Optional fields of requests: the setting's element, and how its text is read.
const SETTINGS = { temperature: Number, max_tokens: Number };

let state = "loading"; // loading, locked (a key is wanted), ready, busy, failed
let messages = []; // the conversation, without the system message
let contexts = new Map(); // model -> context length, if it is loaded
let answer = null; // the answer being streamed

/** Interface for tests and the console. */
window.camelid = {
  get state() {
    return state;
  },
  get messages() {
    return messages;
  },
};

/** Asks for the models, and shows the form for a key if the server refuses. */
async function connect() {
  setState("loading", "Asking the server for its models");
  hideProblem();
  try {
    const { data } = await getJson("v1/models");
    showModels(data);
  } catch (error) {
    if (error.status === 401 || error.status === 403) askKey(error);
    else fail(error);
  }
}

function showModels(models) {
  const choice = at("model");
  const before = choice.value;
  choice.replaceChildren(...models.map(({ id }) => new Option(id, id)));
  if (models.some(({ id }) => id === before)) choice.value = before;
  contexts = new Map(models.map(({ id, meta }) => [id, meta?.n_ctx]));
  at("key-form").hidden = true;
  at("forget").hidden = !hasKey();
  setState("ready", statusLine());
  showConversation();
  watch();
  if (matchMedia("(hover: hover)").matches) at("prompt").focus();
}

/** The model, its context length and the number of models on offer. */
function statusLine() {
  const { value, options } = at("model");
  const context = contexts.get(value);
  const words = [value || "no model", context && `context ${context.toLocaleString("en")}`];
  if (options.length > 1) words.push(`${options.length} models on offer`);
  return words.filter(Boolean).join(" · ");
}

function askKey(error) {
  if (hasKey()) showProblem("The server refused this key.", error.message);
  forgetKey();
  at("key-form").hidden = false;
  at("forget").hidden = true;
  at("starters").hidden = true;
  setState("locked", "This server wants a key");
  at("key").focus();
}

function fail(error) {
  setState("failed", "Not ready");
  showProblem(error.message, RELOAD);
}

/** Sends a prompt as the next turn, and streams the answer into the transcript. */
async function submit(text) {
  const prompt = text.trim();
  if (!prompt || state !== "ready") return;
  hideProblem();
  at("prompt").value = "";
  const question = addTurn("user", prompt);
  const element = addTurn("assistant", "");
  element.setAttribute("aria-busy", "true");
  answer = { prompt, question, element, text: "", reasoning: "", n: 0, abort: new AbortController() };
  setState("busy");
  showConversation();
  const reason = await read(answer).catch(ended);
  finish(reason);
}

/** Reads the stream to its end and returns the finish reason. */
async function read(answer) {
  answer.started = performance.now();
  const asked = [...messages, { role: "user", content: answer.prompt }];
  const body = { model: at("model").value, messages: withSystem(asked), ...options() };
  let reason = null;
  for await (const { choices, usage, timings } of streamChat(body, answer.abort.signal)) {
    if (usage) Object.assign(answer, { usage, timings });
    for (const { delta, finish_reason: why } of choices) {
      reason ??= why;
      add(answer, delta);
    }
  }
  return reason;
}

function add(answer, { content, reasoning_content: reasoning }) {
  if (!content && !reasoning) return;
  answer.text += content ?? "";
  answer.reasoning += reasoning ?? "";
  answer.n += 1;
  answer.last = performance.now();
  answer.first ??= answer.last;
  answer.painting ??= setTimeout(() => paint(answer), PAINT_MS);
}

/** The reason of an answer that its user or an error ended; shows the error. */
function ended(error) {
  if (error.name === "AbortError") return "stopped";
  if (error.status === 401) askKey(error);
  else if (error instanceof ApiError) showProblem(error.message, error.hint);
  else showProblem(BROKEN, "");
  return "broken";
}

function withSystem(asked) {
  const content = at("system").value.trim();
  return content ? [{ role: "system", content }, ...asked] : asked;
}

function options() {
  const given = Object.entries(SETTINGS).filter(([name]) => at(name).value.trim());
  return Object.fromEntries(given.map(([name, read]) => [name, read(at(name).value)]));
}

/** Shows what was received so far; a reader who scrolled up stays there. */
function paint(answer) {
  const { element, text, reasoning, n, first, last } = answer;
  answer.painting = null;
  const isAtEnd = window.innerHeight + window.scrollY >= document.body.scrollHeight - END_PX;
  if (reasoning) thoughts(element).textContent = reasoning;
  element.querySelector(":scope > .text").replaceChildren(...markdown(text));
  showFigures([count(n), n > 1 && rate((1000 * (n - 1)) / (last - first))]);
  if (isAtEnd) followEnd();
}

/** The element of an answer's reasoning, collapsed before its text. */
function thoughts(element) {
  const found = element.querySelector(".reasoning .text");
  if (found) return found;
  const box = document.createElement("details");
  box.className = "reasoning";
  box.append(document.createElement("summary"), document.createElement("div"));
  box.firstChild.textContent = "Reasoning";
  box.lastChild.className = "text";
  element.insertBefore(box, element.querySelector(":scope > .text"));
  return box.lastChild;
}

/** Ends the turn. Without any text, the question returns to the prompt. */
function finish(reason) {
  const { element, question, prompt, text, reasoning } = answer;
  clearTimeout(answer.painting);
  paint(answer);
  element.removeAttribute("aria-busy");
  if (!text && !reasoning && reason !== "stop" && reason !== "length") {
    element.remove();
    question.remove();
    at("prompt").value ||= prompt;
    showFigures([]);
  } else {
    messages.push({ role: "user", content: prompt }, { role: "assistant", content: text });
    if (NOTES[reason]) addNote(element, NOTES[reason]);
    showFigures(lastFigures(answer));
  }
  answer = null;
  if (state === "busy") setState("ready");
  showConversation();
}

function lastFigures({ n, started, first, last, usage, timings }) {
  const speed = timings?.predicted_per_second ?? (1000 * (n - 1)) / (last - first);
  const words = [count(usage?.completion_tokens ?? n), rate(speed)];
  if (first) words.push(`first after ${((first - started) / 1000).toFixed(2)} s`);
  if (!usage) return words;
  const cached = usage.prompt_tokens_details?.cached_tokens;
  return [...words, `prompt of ${usage.prompt_tokens}${cached ? `, ${cached} cached` : ""}`];
}

const count = (n) => `${n} ${n === 1 ? "token" : "tokens"}`;
const rate = (speed) => Number.isFinite(speed) && speed > 0 && `${speed.toFixed(1)} tok/s`;

function showFigures(words) {
  at("figures").textContent = words.filter(Boolean).join(" · ");
}

/** Shows what belongs to a conversation with or without turns. */
function showConversation() {
  const hasTurns = at("transcript").children.length > 0;
  at("starters").hidden = hasTurns || state !== "ready";
  at("clear").hidden = !hasTurns;
}

function setState(next, text) {
  state = next;
  at("status").dataset.state = next;
  if (text) at("status-text").textContent = text;
  at("send").textContent = next === "busy" ? "Stop" : "Send";
  at("send").disabled = next !== "ready" && next !== "busy";
  for (const id of ["clear", "forget", "model"]) at(id).disabled = next === "busy";
}

listenToPrompt({ isBusy: () => state === "busy", submit, stop: () => answer?.abort.abort() });

at("model").addEventListener("change", () => setState(state, statusLine()));

at("clear").addEventListener("click", () => {
  messages = [];
  at("transcript").replaceChildren();
  showFigures([]);
  hideProblem();
  showConversation();
  at("prompt").focus();
});

at("key-form").addEventListener("submit", (event) => {
  event.preventDefault();
  try {
    setKey(at("key").value.trim());
  } catch (error) {
    return showProblem(error.message, "");
  }
  at("key").value = "";
  connect();
});

at("forget").addEventListener("click", () => {
  forgetKey();
  connect();
});

at("load").open = matchMedia("(min-width: 64rem)").matches;
connect();
