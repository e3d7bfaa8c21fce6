// What the visitor's clicks, keys and files do.

import { damageOf } from "./checks.js";
import { textOf } from "./content.js";
import { at, download, tell } from "./elements.js";
import { fromFile, ImportError, toJson, toMarkdown } from "./exchange.js";
import { listenToImages, show as showImages, takeImages } from "./images.js";
import { keep, kept } from "./kept.js";
import { isComposing, listenToKeys } from "./keys.js";
import { Lazy, loadStyle } from "./lazy.js";
import { ask, openHelp, openSchema, openSettings } from "./sheets.js";
import { isNarrow, listenToDrawer, showDrawer } from "./sidebar.js";
import { canDictate, dictate, onVoices, toggleReading } from "./speech.js";
import { faultWords, hideProblem, showProblem } from "./status.js";
import { text, useLanguage } from "./texts.js";
import { path } from "./tree.js";

const SESSION_FILE = "session.camelid";
const MODELS_STYLE = new URL("../models/models.css", import.meta.url);
const modelsDialog = new Lazy((again) => import(`../models/models.js${again}`));

/**
 * Makes the page's controls work.
 * @param {import("./chat.js").Chat} chat
 * @param {{openModel: (model: any, name: string, mmproj?: any) => void}} page
 */
export function listenToActions(chat, { openModel }) {
  listenToDrawer();
  listenToPrompt(chat);
  listenToImages();
  listenToTurns(chat);
  listenToList(chat);
  listenToMenu(chat, openModel);
  listenToTools(chat);
  void listenToDictation();
  onVoices(() => chat.state !== "busy" && chat.refresh());
  const on = (id, act) => at(id).addEventListener("click", act);
  const actions = shortcuts(chat, openModel);
  on("clear", actions.new);
  on("open-settings", actions.settings);
  on("open-help", actions.help);
  on("open-models", actions.models);
  on("open-schema", () => openSchema(chat.schema, (words) => (chat.setSchema(words), showSwitches(chat))));
  on("dismiss", hideProblem);
  on("to-end", () => window.scrollTo({ top: document.body.scrollHeight, behavior: "smooth" }));
  window.addEventListener("scroll", showToEnd, { passive: true });
  listenToKeys(actions);
  showSwitches(chat);
}

function shortcuts(chat, openModel) {
  return {
    stop: () => chat.stop(),
    new: () => (showDrawer(false), tried(chat.new())),
    search: () => (isNarrow() && showDrawer(true), at("search").focus()),
    prompt: () => at("prompt").focus(),
    regenerate: () => tried(chat.regenerate()),
    edit: () => editLast(chat),
    copy: () => copyLast(chat),
    models: () => canOpenModels() && tried(showModels(openModel)),
    settings: () => settings(chat),
    help: () => openHelp(),
  };
}

/** Shows the error of an action that fails. */
async function tried(action) {
  try {
    await action;
  } catch (error) {
    showProblem(faultWords(error));
  }
}

/** Enter and the button send the prompt; the button stops a running answer; starters are prompts, too. */
function listenToPrompt(chat) {
  const submit = (words) => {
    const prompt = words.trim();
    if (!prompt && at("images").hidden) return;
    if (chat.state !== "ready") return tell(text(`not-ready.${chat.state}`));
    at("prompt").value = "";
    chat.say(prompt, {}, takeImages()).catch(() => {}); // the problem is shown
  };
  at("form").addEventListener("submit", (event) => {
    event.preventDefault();
    if (chat.state === "busy") chat.stop();
    else submit(at("prompt").value);
  });
  at("prompt").addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || event.shiftKey || isComposing(event)) return;
    event.preventDefault();
    submit(at("prompt").value);
  });
  at("starters").addEventListener(
    "click",
    ({ target }) => target.matches("button") && submit(target.textContent),
  );
}

function listenToTurns(chat) {
  const acts = {
    copy: (node) => copy(textOf(node.message.content)),
    "copy-code": (_, button) => copy(button.closest(".code").querySelector("code").textContent),
    edit: (node, button) => chat.edit(node, button.closest("li[data-id]")),
    regenerate: (node) => chat.regenerate(node),
    good: (node) => chat.rate(node, 1),
    bad: (node) => chat.rate(node, -1),
    speak: (node) => toggleReading(node.id, textOf(node.message.content)),
    remove: async (node) => (await ask(text("remove.sure"), danger())) && chat.remove(node),
    before: (node) => chat.choose(node, -1),
    after: (node) => chat.choose(node, 1),
  };
  at("transcript").addEventListener("click", ({ target }) => {
    const button = target.closest("[data-act]");
    if (!button) return;
    const { act } = button.dataset;
    if (act === "copy-code") return acts[act](null, button);
    const node = chat.nodeOf(button);
    void tried(acts[act](node, button));
    if (act === "before" || act === "after") focusBranch(chat, node, act);
  });
}

/** Keeps the keyboard on the arrow, whose element was made again. */
function focusBranch(chat, node, act) {
  const shown = path(chat.conversation).find(({ parent }) => parent === node.parent);
  const turn = at("transcript").querySelector(`[data-id="${shown.id}"]`);
  const arrow = turn.querySelector(`[data-act="${act}"]`);
  (arrow.disabled ? turn.querySelector(".branches button:not(:disabled)") : arrow)?.focus();
}

const danger = () => ({ action: text("delete"), isDanger: true });

function listenToList(chat) {
  at("search").addEventListener("input", () => chat.list());
  const acts = {
    open: async (id) => (showDrawer(false), chat.select(id)),
    rename: (id, title) => rename(chat, id, title),
    delete: (id, title) => remove(chat, id, title),
  };
  at("conversations").addEventListener("click", ({ target }) => {
    const button = target.closest("[data-act]");
    const row = button?.closest("[data-id]");
    if (row) void tried(acts[button.dataset.act](row.dataset.id, row.querySelector(".open").textContent));
  });
}

async function rename(chat, id, title) {
  const given = await ask(text("rename.title"), { value: title });
  if (given?.trim()) await chat.rename(id, given.trim());
}

async function remove(chat, id, title) {
  if (await ask(text("delete.sure", { title }), danger())) await chat.delete(id);
}

function listenToMenu(chat, openModel) {
  const on = (id, act) =>
    at(id).addEventListener("click", () => (at("menu").hidePopover(), void tried(act(chat.conversation))));
  on("rename", ({ id, title }) => rename(chat, id, title));
  on("delete", ({ id, title }) => remove(chat, id, title || text("untitled")));
  on("export-markdown", (one) =>
    download(new Blob([toMarkdown(one)], { type: "text/markdown" }), fileName(one, "md")),
  );
  on("export-json", (one) => download(jsonBlob([one]), fileName(one, "json")));
  on("export-all", () => exportAll(chat));
  on("save", async () => download(await chat.saveSession(), SESSION_FILE));
  onFiles("import", (files) => importAll(chat, files));
  onFiles("session", ([file]) => chat.state === "ready" && chat.openSession(file));
  onFiles("file", (files) => openFiles(files, openModel));
}

/** Downloads all conversations that can be imported again. */
async function exportAll(chat) {
  const all = await chat.all();
  const whole = all.filter((one) => !damageOf(one));
  download(jsonBlob(whole), "conversations.json");
  if (whole.length < all.length) showProblem(text("export.damaged", { n: all.length - whole.length }));
}

function onFiles(id, act) {
  at(id).addEventListener("change", ({ target }) => {
    const files = [...target.files];
    target.value = ""; // lets the visitor choose the same file again
    at("menu").hidePopover();
    if (files.length) act(files);
  });
}

const jsonBlob = (conversations) => new Blob([toJson(conversations)], { type: "application/json" });

function fileName({ title }, suffix) {
  const words = title.match(/[\p{L}\p{N}]+/gu) ?? ["conversation"];
  return `${words.join("-")}.${suffix}`;
}

async function importAll(chat, files) {
  try {
    const found = [];
    for (const file of files) found.push(...fromFile(await file.text(), file.name));
    await chat.adopt(found);
    tell(text("import.done", { n: found.length }));
  } catch (error) {
    showProblem(error instanceof ImportError ? text(error.key, error.values) : error.message);
  }
}

function listenToTools(chat) {
  for (const box of at("tools").querySelectorAll("input")) box.checked = chat.tools.includes(box.value);
  at("tools").addEventListener("change", () => {
    chat.setTools([...at("tools").querySelectorAll("input:checked")].map(({ value }) => value));
    showSwitches(chat);
  });
}

/** Shows what is switched on: tools and schema. */
function showSwitches({ tools, schema }) {
  at("open-tools").setAttribute("aria-pressed", String(tools.length > 0));
  at("tools-label").textContent = tools.length ? text("tools.on", { n: tools.length }) : text("tools");
  at("open-schema").setAttribute("aria-pressed", String(Boolean(schema)));
}

async function listenToDictation() {
  at("dictate").hidden = !(await canDictate());
  let stop = null;
  const show = () => at("dictate").setAttribute("aria-pressed", String(Boolean(stop)));
  at("dictate").addEventListener("click", () => {
    if (stop) return stop();
    const hear = (words) => (at("prompt").value = `${at("prompt").value} ${words}`.trim());
    stop = dictate(hear, () => ((stop = null), show()));
    show();
  });
}

function settings(chat) {
  const now = { settings: chat.settings, system: chat.conversation.system, theme: kept("theme", "system") };
  openSettings(now, {
    onSetting: (name, value) => chat.setSetting(name, value),
    onSystem: (words) => chat.setSystem(words),
    onTheme: (name) => (keep("theme", name), setTheme(name)),
    onLanguage: (name) => tried(setLanguage(chat, name)),
    onDeleteAll: () => tried(deleteAll(chat)),
  });
}

async function setLanguage(chat, name) {
  await useLanguage(name);
  keep("language", name);
  chat.translate();
  showImages();
  showSwitches(chat);
  await chat.list();
  settings(chat);
  at("language").focus();
}

async function deleteAll(chat) {
  const { length: n } = await chat.all();
  if (await ask(text("delete.all.sure", { n }), danger())) await chat.deleteAll();
}

function setTheme(name) {
  document.documentElement.dataset.theme = name;
}

/** web/models, where this site has it; undefined, and a problem, where not. */
function modelsModule() {
  return modelsDialog
    .load()
    .catch(({ message }) => void showProblem(text("models.absent", { why: message })));
}

/** True if the button of the models dialog is there and works: a shortcut opens no more than the button. */
function canOpenModels() {
  const { hidden, disabled } = at("open-models");
  return !hidden && !disabled;
}

/** The dialog of web/models. */
async function showModels(openModel) {
  const [models] = await Promise.all([modelsModule(), loadStyle(MODELS_STYLE)]);
  if (!models || at("models").open) return;
  const onNotice = (words, isFailure) => (isFailure ? showProblem(words) : tell(words));
  await models.openModels(at("models"), { onOpen: openModel, onNotice });
}

/** Opens the one model among chosen files: a file, or its parts in any order. */
async function openFiles(files, openModel) {
  const found = await (await modelsModule())?.oneModel(files).catch(({ message }) => showProblem(message));
  if (found) openModel(found.model, found.name, found.mmproj);
}

function editLast(chat) {
  const node = path(chat.conversation).findLast(({ message }) => message.role === "user");
  if (node) chat.edit(node, at("transcript").querySelector(`[data-id="${node.id}"]`));
}

function copyLast(chat) {
  const node = path(chat.conversation).findLast(({ message }) => message.role === "assistant");
  if (node) void copy(textOf(node.message.content));
}

async function copy(words) {
  try {
    await navigator.clipboard.writeText(words);
    tell(text("copied"));
  } catch {
    tell(text("copy.refused"));
  }
}

function showToEnd() {
  at("to-end").hidden = window.innerHeight + window.scrollY >= document.body.scrollHeight - 200;
}
