// The open conversation: what is said, answered, edited and kept, and what the page shows of it.

import { at } from "./elements.js";
import { given, keep, kept } from "./kept.js";
import { options, schemaOption } from "./settings.js";
import { showList } from "./sidebar.js";
import { hideProblem, showFigures, showNote, showProblem, showState } from "./status.js";
import { Talk } from "./talk.js";
import { text } from "./texts.js";
import { editTurn, LiveTurn, turnElement } from "./transcript.js";
import {
  addNode,
  childrenOf,
  choose,
  fromMessages,
  messagesOf,
  newConversation,
  path,
  removeNode,
  ROOT,
} from "./tree.js";

const END_PX = 80; // a reader this near to the end follows it

/** The chat of this page. */
export class Chat {
  #store = null;
  #talk = null;
  #live = null; // the answer that is generated
  #running = Promise.resolve();
  #isKept = true;
  #words = () => "";

  constructor() {
    this.state = "loading";
    this.conversation = newConversation(kept("system", ""));
    this.settings = { ...kept("settings", {}), ...given };
    this.tools = kept("tools", []);
    this.schema = kept("schema", "");
  }

  /** Shows the conversation that the address names, else a new one. */
  async open(store) {
    this.#store = store;
    store.onChange((id) => this.#changedElsewhere(id));
    const found = await store.get(location.hash.slice(1));
    if (found) this.#show(found);
    else if (!this.conversation.nodes.length) this.#show(this.conversation);
    await this.list();
  }

  /** Answers come from this model from now on. */
  use(llm) {
    this.#talk = new Talk(llm);
  }

  /** Shows a state; `words` makes its line, in the language that the page has then. */
  setState(state, words = this.#words) {
    [this.state, this.#words] = [state, words];
    showState(state, words());
    at("starters").hidden = state !== "ready" || this.conversation.nodes.length > 0 || Boolean(this.#live);
  }

  /** Begins a new conversation; `isKept` false leaves no trace of it. */
  begin({ isKept = true } = {}) {
    hideProblem();
    this.#show(newConversation(kept("system", "")), isKept);
  }

  /** Shows a kept conversation, after the end of a running answer. */
  async select(id) {
    await this.#idle();
    hideProblem();
    const found = await this.#store.get(id);
    if (found) this.#show(found);
    await this.list();
  }

  async new() {
    await this.#idle();
    this.begin();
    await this.list();
    at("prompt").focus();
  }

  /** Sends a prompt as the next message. Rejects if the model fails; the prompt then returns to its field. */
  async say(prompt, extra = {}) {
    this.#checkReady();
    const shown = path(this.conversation);
    const node = this.#add(shown.at(-1)?.id ?? ROOT, { role: "user", content: prompt });
    try {
      return await this.answer(extra);
    } catch (error) {
      if (!childrenOf(this.conversation, node.id).length) this.#takeBack(node, prompt);
      throw error;
    }
  }

  /** Messages of the shown branch, and the options of its requests. */
  asked() {
    return { messages: messagesOf(this.conversation), options: options(this.settings) };
  }

  /** Answers the shown branch. */
  async answer(extra = {}) {
    this.#checkReady();
    hideProblem();
    this.#running = this.#answer(extra);
    return this.#running;
  }

  #checkReady() {
    if (this.state !== "ready") throw new Error(text("not-ready", { state: this.state }));
  }

  /** Returns an unanswered prompt to its field. */
  #takeBack(node, prompt) {
    removeNode(this.conversation, node);
    at("prompt").value ||= prompt;
    this.refresh();
    void this.#save();
  }

  async #answer(extra) {
    this.setState("busy");
    const { conversation } = this;
    const how = { ...options(this.settings), ...schemaOption(this.schema), ...extra };
    try {
      const listener = {
        begin: () => this.#begin(),
        event: (event) => this.#live.push(event),
        message: (message, result) => this.#end(conversation, message, result),
      };
      const result = await this.#talk.answer(conversation, { options: how, tools: this.tools }, listener);
      showFigures(result.token_ids.length, result.decode_tps, result);
      return result;
    } catch (error) {
      this.#drop();
      showProblem(error.message, error.name === "DeviceLostError" ? text("again") : "");
      throw error;
    } finally {
      if (this.state === "busy") this.setState("ready");
    }
  }

  #begin() {
    this.#live = new LiveTurn((turn) => this.#follow(() => showFigures(turn.n, turn.rate)));
    this.#follow(() => at("transcript").append(this.#live.element));
    this.setState("busy");
  }

  #end(conversation, message, result) {
    this.#drop();
    const facts = result && {
      finish_reason: result.finish_reason,
      ...(result.rounds && { rounds: result.rounds }),
    };
    this.#add(path(conversation).at(-1).id, message, facts);
  }

  #drop() {
    this.#live?.end();
    this.#live?.element.remove();
    this.#live = null;
  }

  #add(parent, message, facts) {
    const node = addNode(this.conversation, parent, message, facts);
    this.#follow(() => at("transcript").append(turnElement(this.conversation, node)));
    this.#title();
    void this.#save();
    return node;
  }

  /** Changes the page; keeps its end in view for a reader who is there. */
  #follow(change) {
    const isAtEnd = window.innerHeight + window.scrollY >= document.body.scrollHeight - END_PX;
    change();
    if (isAtEnd) window.scrollTo({ top: document.body.scrollHeight });
  }

  stop() {
    this.#talk?.stop();
  }

  /** Edits a message: a new version beside it, which is answered if it is the visitor's. */
  edit(node, element) {
    editTurn(element, node, async (content) => {
      await this.#idle();
      addNode(this.conversation, node.parent, { ...node.message, content });
      this.refresh();
      await this.#save();
      if (node.message.role === "user") await this.answer().catch(() => {}); // the problem is shown
    });
  }

  /** A new answer beside `node`'s, or beside the last one. */
  async regenerate(node = path(this.conversation).findLast(({ message }) => message.role === "assistant")) {
    if (!node || this.state !== "ready") return;
    const shown = path(this.conversation);
    const before = shown.slice(0, shown.indexOf(node));
    const first = before.findLastIndex(({ message }) => message.role === "user");
    const kept = { ...this.conversation.chosen };
    this.#cut(before[first]?.id ?? node.parent);
    await this.answer().catch(() => {
      this.conversation.chosen = kept;
    });
    this.refresh();
    await this.#save();
  }

  /** Hides what stands below a node: the next message becomes a new branch. */
  #cut(parent) {
    this.conversation.chosen[parent] = null;
    this.refresh();
  }

  choose(node, step) {
    if (this.state === "busy") return;
    choose(this.conversation, node, step);
    this.refresh();
    void this.#save();
  }

  async remove(node) {
    await this.#idle();
    removeNode(this.conversation, node);
    this.refresh();
    await this.#save();
  }

  /** Opens a session's file as a new conversation. */
  async openSession(file) {
    const before = this.state;
    hideProblem();
    this.setState("loading");
    try {
      const session = await this.#talk.open(file);
      this.#show(fromMessages(session.messages));
      this.#talk.adopt(this.conversation);
      await this.#save();
      const figures = { n: session.n_tokens, cached: session.cached_rows };
      at("figures").textContent = text("session.figures", figures);
      if (session.note) showProblem(text("session.note", { note: session.note }));
    } catch (error) {
      showProblem(error.message);
    } finally {
      this.setState(before);
    }
  }

  /** The session's file of the open conversation. */
  saveSession() {
    return this.#talk.save(this.conversation);
  }

  /** Keeps imported conversations and shows the last of them. */
  async adopt(conversations) {
    await this.#idle();
    for (const one of conversations) await this.#store.put(one);
    if (conversations.length) await this.select(conversations.at(-1).id);
  }

  all() {
    return this.#store.list();
  }

  async rename(id, title) {
    const found = id === this.conversation.id ? this.conversation : await this.#store.get(id);
    found.title = title;
    if (found.nodes.length) await this.#store.put(found);
    this.#title();
    await this.list();
  }

  async delete(id) {
    await this.#idle();
    await this.#store.remove(id);
    if (id === this.conversation.id) this.begin();
    await this.list();
  }

  async deleteAll() {
    await this.#idle();
    await this.#store.clear();
    this.begin();
    await this.list();
  }

  setSystem(system) {
    this.conversation.system = system;
    keep("system", system);
    if (this.conversation.nodes.length) void this.#save();
  }

  setSetting(name, value) {
    this.settings[name] = value;
    keep("settings", this.settings);
  }

  setTools(names) {
    keep("tools", (this.tools = names));
  }

  setSchema(words) {
    keep("schema", (this.schema = words));
  }

  /** Node of an element in the transcript. */
  nodeOf(element) {
    const { id } = element.closest("[data-id]").dataset;
    return this.conversation.nodes.find((node) => node.id === id);
  }

  /** Shows the list of conversations. */
  async list() {
    if (this.#store) showList(await this.#store.list(), this.conversation.id);
  }

  #show(conversation, isKept = true) {
    [this.conversation, this.#isKept] = [conversation, isKept];
    at("figures").textContent = "";
    const address = new URL(location.href);
    address.hash = conversation.nodes.length ? conversation.id : "";
    history.replaceState(null, "", address);
    this.refresh();
    window.scrollTo({ top: document.body.scrollHeight });
  }

  /** Shows the branch again, as after a change of it or of the language. */
  refresh() {
    const turns = path(this.conversation).map((node) => turnElement(this.conversation, node));
    at("transcript").replaceChildren(...turns);
    this.#title();
    this.setState(this.state);
  }

  #title() {
    const title = this.conversation.title || text("untitled");
    at("title").textContent = title;
    document.title = `${title} · Camelid`;
  }

  async #save() {
    if (!this.#store || !this.#isKept) return;
    this.conversation.changed = Date.now();
    history.replaceState(null, "", `#${this.conversation.id}`);
    try {
      await this.#store.put(this.conversation);
      await this.list();
    } catch (error) {
      showNote(error.message);
    }
  }

  async #changedElsewhere(id) {
    if (id === this.conversation.id && this.state !== "busy") {
      const found = await this.#store.get(id);
      if (found) this.#show(found);
    }
    await this.list();
  }

  /** Ends a running answer and waits for its end. */
  async #idle() {
    this.stop();
    await this.#running.catch(() => {});
  }
}
