// The page: conversations with a model, over web/client. Model code runs in the worker only.

import { listenToActions } from "./chat/actions.js";
import { Chat } from "./chat/chat.js";
import { at } from "./chat/elements.js";
import { showAttach } from "./chat/images.js";
import { Lazy } from "./chat/lazy.js";
import { options } from "./chat/settings.js";
import { faultText } from "./chat/sheets.js";
import { noteFault } from "./chat/shelf.js";
import {
  beginProgress,
  faultWords,
  hideProblem,
  readyLine,
  showNote,
  showProblem,
  showProgress,
  showReading,
} from "./chat/status.js";
import { Store, TabStore } from "./chat/store.js";
import { currentLanguage, preferredLanguage, text, useLanguage } from "./chat/texts.js";
import { messagesOf } from "./chat/tree.js";
import { embeddedModel } from "./embedded.js";
import { isOneFile } from "./files.js";
import { keepOffline } from "./offline.js";
import { first, flaw, Opening } from "./start.js";

const glass = new Lazy((again) => import(`./glass/glass.js${again}`));
const REST_MS = 5000; // an answer that does not end by then ends with its worker

let opening = null; // the model that was opened last
let llm = null;
let chat = null;
let restored = null; // promise of the kept conversations, before which no prompt is taken

/** Interface for tests and the console. */
window.camelid = {
  get state() {
    return chat?.state ?? "loading";
  },
  /** Sends a prompt in a conversation of its own, which is not kept; resolves to {text, token_ids, ...}. */
  ask: async (prompt, options) => {
    chat.checkReady();
    chat.begin({ isKept: false });
    return chat.say(prompt, options);
  },
  /** Sends a prompt as the next turn of the conversation. */
  say: (prompt, options) => chat.say(prompt, options),
  stop: () => chat.stop(),
};

/** Loads a model after the end of a running answer; ends the old one. */
async function start(model, name, mmproj) {
  opening?.stop();
  const mine = (opening = new Opening(model, name, mmproj));
  showOpening(name);
  await Promise.race([chat.rest(), new Promise((resolve) => setTimeout(resolve, REST_MS))]);
  if (mine.isStopped) return; // another model was opened
  chat.use(null);
  void llm?.close();
  llm = null;
  await follow(mine.begin());
}

function showOpening(name) {
  at("open-glass").disabled = true;
  showAttach(false);
  beginProgress();
  hideProblem();
  showNote("");
  chat.setState("loading", () => text("loading.name", { name }));
}

/** Shows the loading of a model, and uses it. */
async function follow(model) {
  model.listen({ onProgress: showProgress, onNotice: showNotice });
  try {
    const [loaded] = await Promise.all([model.llm, restored]);
    if (model.isStopped) return void loaded.close();
    llm = loaded;
    ready(llm.info);
  } catch (error) {
    if (!model.isStopped) fail(faultWords(error), text("again"));
  }
}

/** Shows a notice of the client, in the page's language if the page has its text. */
function showNotice(words, key) {
  showNote(key ? text(key) : words);
}

/** Loads the model inside this page. */
async function startEmbedded() {
  try {
    const files = await embeddedModel((...progress) => opening || showReading(...progress));
    if (!opening) await start(files, files[0].name); // else the visitor opened another model
  } catch (error) {
    if (!opening) fail(error.message, "");
  }
}

function ready(info) {
  chat.use(llm);
  at("open-glass").disabled = false;
  showAttach(info.takes_images);
  chat.setState("ready", () => readyLine(info));
  showNote(noteOf(info));
  void keepOffline();
  if (matchMedia("(hover: hover)").matches && document.activeElement === document.body) at("prompt").focus();
}

/** The reason against WebGPU for the model, or for its images alone. */
function noteOf({ backend, why, images_on: tower }) {
  if (why) return text("status.processor", { why });
  return tower && tower !== backend ? text("status.images") : "";
}

function fail(message, hint) {
  chat.setState("failed", () => text("status.failed"));
  showProblem(message, hint);
}

async function showGlass() {
  at("menu").hidePopover();
  const { openGlass } = await glass.load();
  const asked = { messages: messagesOf(chat.conversation), options: options(chat.settings) };
  await openGlass(at("glass"), { llm, model: opening.model, ...asked }, currentLanguage());
}

async function openStore() {
  try {
    return await Store.open();
  } catch {
    showNote(text("status.no-store"), "store-note");
    return new TabStore();
  }
}

await useLanguage(preferredLanguage()).catch(() => useLanguage("en"));
chat = new Chat();
restored = openStore()
  .then((store) => chat.open(store))
  .catch(noteFault);
if (first) {
  opening = first;
  showOpening(first.name);
  void follow(first);
} else if (flaw) fail(faultText(flaw), text("settings.correct"));
else void startEmbedded();
// Models that are opened use the settings of the address, too.
for (const id of ["file", "open-models"]) at(id).disabled = Boolean(flaw);
// One file has no store for models, no network and no second page; its policy permits no rival.
for (const id of ["open-models", "open-glass", "open-search"]) at(id).hidden = isOneFile;
listenToActions(chat, { openModel: start }); // the sidebar, a drawer on narrow screens, becomes active there
for (const id of ["bar", "composer-row"]) at(id).inert = false;
at("open-glass").addEventListener("click", () => showGlass().catch(({ message }) => showProblem(message)));
