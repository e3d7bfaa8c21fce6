// The page: conversations with a model, over web/client. Model code runs in the worker only.

import { load } from "./client/camelid.js";
import { listenToActions } from "./chat/actions.js";
import { Chat } from "./chat/chat.js";
import { at } from "./chat/elements.js";
import { allSettings, given } from "./chat/kept.js";
import { faultOf } from "./chat/settings.js";
import { faultText } from "./chat/sheets.js";
import {
  beginProgress,
  hideProblem,
  readyLine,
  showNote,
  showProblem,
  showProgress,
  showState,
} from "./chat/status.js";
import { Store, TabStore } from "./chat/store.js";
import { currentLanguage, preferredLanguage, text, useLanguage } from "./chat/texts.js";
import { keepOffline } from "./offline.js";

let loading = null; // AbortController of the model that is being loaded
let llm = null;
let opened = null; // what `load` takes for the model
let chat = null;

/** Interface for tests and the console. */
window.camelid = {
  get state() {
    return chat?.state ?? "loading";
  },
  /** Sends a prompt in a conversation of its own, which is not kept; resolves to {text, token_ids, ...}. */
  ask: (prompt, options) => (chat.begin({ isKept: false }), chat.say(prompt, options)),
  /** Sends a prompt as the next turn of the conversation. */
  say: (prompt, options) => chat.say(prompt, options),
  stop: () => chat.stop(),
};

/** Loads a model in a new worker; ends the old worker, whose answer fails. */
async function start(model, name) {
  loading?.abort();
  void llm?.close();
  llm = null;
  at("open-glass").disabled = true;
  opened = model;
  beginProgress();
  hideProblem();
  showNote("");
  chat.setState("loading", () => text("loading.model", { name }));
  const { signal } = (loading = new AbortController());
  try {
    const loaded = await load(model, {
      ...loadOptions(),
      onProgress: showProgress,
      onNotice: showNote,
      signal,
    });
    if (signal.aborted) return void loaded.close();
    llm = loaded;
    ready(llm.info);
  } catch (error) {
    if (!signal.aborted) fail(error.message, text("again"));
  }
}

/** Options for loading. `adapter` implies backend webgpu unless the address names a backend. */
function loadOptions() {
  const { backend, adapter = "", threads } = allSettings();
  const options = { backend: backend || (adapter ? "webgpu" : "auto"), adapter };
  return threads ? { ...options, threads: Number(threads) } : options;
}

function ready(info) {
  chat.use(llm);
  at("open-glass").disabled = false;
  chat.setState("ready", () => readyLine(info));
  showNote(info.why ? text("status.processor", { why: info.why }) : "");
  void keepOffline();
  if (matchMedia("(hover: hover)").matches && document.activeElement === document.body) at("prompt").focus();
}

function fail(message, hint) {
  chat.setState("failed", () => text("status.failed"));
  showProblem(message, hint);
}

/** The first invalid setting of the address as text, or null. */
function flaw() {
  const found = Object.entries(given)
    .map(([name, value]) => faultOf(name, value))
    .find(Boolean);
  return found ? faultText(found) : null;
}

async function showGlass() {
  at("menu").hidePopover();
  const { openGlass } = await import("./glass/glass.js");
  const { messages, options } = chat.asked();
  await openGlass(at("glass"), { llm, model: opened, messages, options }, currentLanguage());
}

async function openStore() {
  try {
    return await Store.open();
  } catch {
    showNote(text("status.no-store"));
    return new TabStore();
  }
}

await useLanguage(preferredLanguage());
const wrong = flaw();
chat = new Chat();
if (wrong) fail(wrong, text("settings.correct"));
else void start(new URL(allSettings().model, location.href).href, allSettings().model);
// A model that is opened would use the same settings.
for (const id of ["file", "open-models"]) at(id).disabled = Boolean(wrong);
listenToActions(chat, { openModel: start });
at("open-glass").addEventListener("click", () => showGlass().catch((error) => showProblem(error.message)));
await chat.open(await openStore());
