// The open conversation: prompts, answers, edits, versions, storage.

import { contentOf, imagesOf, textOf } from "./content.js";
import { at, tell } from "./elements.js";
import { returnImages } from "./images.js";
import { allSettings, keep, keepSetting, kept } from "./kept.js";
import { options, schemaOption } from "./settings.js";
import { noteFault, Shelf } from "./shelf.js";
import { faultWords, hideProblem, showFigures, showProblem, showState } from "./status.js";
import { Talk } from "./talk.js";
import { text } from "./texts.js";
import { knownTools } from "./tools.js";
import { completionOf, editTurn } from "./transcript.js";
import * as tree from "./tree.js";
import { showAddress, View } from "./view.js";

const { path, ROOT } = tree;
const lastOf = (conversation) => path(conversation).at(-1)?.id ?? ROOT;

/** The chat of this page. */
export class Chat {
  #shelf = new Shelf();
  #talk = null;
  #running = Promise.resolve();
  #switching = null; // identity of the latest switch of conversations
  #view = new View();
  #words = () => "";

  constructor() {
    this.state = "loading";
    this.conversation = tree.newConversation(kept("system", ""));
    this.settings = allSettings();
    this.tools = knownTools(kept("tools", []));
    this.schema = String(kept("schema", ""));
  }

  /** Shows the conversation that the address names, else a new one; messages said before stay. */
  async open(store) {
    this.#shelf.open(store, (id) => this.#changedElsewhere(id));
    const found = await this.#shelf.get(location.hash.slice(1));
    if (this.conversation.nodes.length) await this.#save();
    else this.#show(found ?? this.conversation);
    await this.list();
  }

  /** Answers come from this model from now on; null for none. */
  use(llm) {
    this.#talk = llm && new Talk(llm);
  }

  /** Shows a state; `words` makes its line, in the language that the page has then. */
  setState(state, words = this.#words) {
    [this.state, this.#words] = [state, words];
    showState(state, words());
    this.#showStarters();
  }

  /** Begins a new conversation; `isKept` false leaves no trace of it. */
  begin({ isKept = true } = {}) {
    hideProblem();
    const conversation = tree.newConversation(kept("system", ""));
    if (!isKept) this.#shelf.exclude(conversation);
    this.#show(conversation);
  }

  /** Shows a kept conversation, after the end of a running answer. */
  select(id) {
    return this.#switch(() => this.#shelf.get(id));
  }

  async new() {
    await this.#switch(() => tree.newConversation(kept("system", "")));
    at("prompt").focus();
  }

  /** Shows the conversation that `find` resolves to, after a running answer's end; the last switch wins. */
  async #switch(find) {
    const mine = (this.#switching = {});
    await this.rest();
    hideProblem();
    const found = await find();
    if (found && mine === this.#switching) this.#show(found);
    await this.list();
  }

  /**
   * Sends a prompt with images, which are data URIs, as the next message. Rejects if the model fails; the
   * prompt then returns to its field.
   */
  async say(prompt, extra = {}, images = []) {
    this.checkReady();
    const { conversation } = this;
    const message = { role: "user", content: contentOf(prompt, images) };
    const node = this.#add(conversation, lastOf(conversation), message);
    this.#view.toEnd();
    try {
      return await this.answer(extra);
    } catch (error) {
      if (!tree.childrenOf(conversation, node.id).length) this.#takeBack(conversation, node);
      throw error;
    }
  }

  /** Answers the shown branch. */
  async answer(extra = {}) {
    this.checkReady();
    hideProblem();
    this.#running = this.#answer(this.conversation, this.#talk, extra);
    return this.#running;
  }

  /** Throws Error with the reason why no answer can begin. */
  checkReady() {
    if (this.state !== "ready") throw new Error(text(`not-ready.${this.state}`));
  }

  /** Returns an unanswered prompt to its field. */
  #takeBack(conversation, node) {
    const { content } = node.message;
    tree.removeNode(conversation, node);
    at("prompt").value ||= textOf(content);
    returnImages(imagesOf(content));
    this.refresh();
    void this.#save(conversation);
  }

  async #answer(conversation, talk, extra) {
    this.setState("busy");
    try {
      const how = { ...options(this.settings), ...schemaOption(this.schema), ...extra };
      const listener = this.#listener(conversation);
      const result = await talk.answer(conversation, { options: how, tools: this.tools }, listener);
      showFigures(result.token_ids.length, result.decode_tps, result);
      return result;
    } catch (error) {
      this.#view.drop();
      const hint = error.name === "DeviceLostError" ? text("again") : "";
      if (talk === this.#talk) showProblem(faultWords(error), hint);
      throw error;
    } finally {
      if (this.state === "busy" && talk === this.#talk) this.setState("ready");
    }
  }

  /** Adds messages below the last one of now, whatever another tab adds there. */
  #listener(conversation) {
    let last = lastOf(conversation);
    return {
      begin: () => conversation === this.conversation && this.#view.begin(),
      event: (event) => this.#view.push(event),
      message: (message, result) => {
        const { finish_reason, rounds, id } = result ?? {};
        const completion = id && { id, visit: performance.timeOrigin };
        const facts = result && { finish_reason, ...(rounds && { rounds }), ...(completion && { completion }) };
        last = this.#add(conversation, last, message, facts).id;
      },
    };
  }

  #add(conversation, parent, message, facts) {
    const node = tree.addNode(conversation, parent, message, facts);
    if (conversation === this.conversation) this.#view.add(conversation, node);
    void this.#save(conversation);
    return node;
  }

  stop() {
    this.#talk?.stop();
  }

  /** Ends a running answer and waits for its end. */
  async rest() {
    for (let running; running !== this.#running; ) {
      running = this.#running;
      this.stop();
      await running.catch(() => {});
    }
  }

  /** Edits a message: a new version beside it, which is answered if it is the visitor's. */
  edit(node, element) {
    const { conversation } = this;
    editTurn(element, node, async (words) => {
      await this.rest();
      if (!this.#isShown(conversation, node)) return;
      const content = contentOf(words, imagesOf(node.message.content));
      tree.addNode(conversation, node.parent, { ...node.message, content });
      this.refresh();
      await this.#save(conversation);
      if (node.message.role === "user") await this.#answerEdit(conversation);
      else if (words !== textOf(node.message.content)) await this.rate(node, -1, words);
    });
  }

  async #answerEdit(conversation) {
    if (conversation !== this.conversation) return;
    if (this.state !== "ready") return tell(text("edit.unanswered"));
    await this.answer().catch(() => {}); // the problem is shown
  }

  /** False once another conversation is open, or another tab has removed the node. */
  #isShown(conversation, node) {
    return conversation === this.conversation && conversation.nodes.some(({ id }) => id === node.id);
  }

  /** A thumb for an answer of this visit, perhaps with the right answer. An older one has no id any more. */
  async rate(node, rating, correction = null) {
    const completion = completionOf(node);
    if (!completion || this.state !== "ready") return;
    await this.#talk.feedback(completion, rating, correction);
    tell(text(correction === null ? "rated" : "rated.right"));
  }

  /** A new answer to the prompt of `node`, by default of the last message, as a further version. */
  async regenerate(node = path(this.conversation).at(-1)) {
    if (!node) return;
    if (this.state !== "ready") return tell(text(`not-ready.${this.state}`));
    const { conversation } = this;
    const shown = path(conversation);
    const before = shown.slice(0, shown.indexOf(node) + 1);
    const prompt = before.findLast(({ message }) => message.role === "user")?.id ?? node.parent;
    const undo = tree.cut(conversation, prompt);
    this.refresh();
    await this.answer().catch(undo);
    this.refresh();
    await this.#save(conversation);
  }

  choose(node, step) {
    if (this.state === "busy") return;
    tree.choose(this.conversation, node, step);
    this.refresh();
    void this.#save();
  }

  async remove(node) {
    const { conversation } = this;
    await this.rest();
    if (!this.#isShown(conversation, node)) return;
    tree.removeNode(conversation, node);
    this.refresh();
    await this.#save(conversation);
  }

  /** Opens a session's file as a new conversation. */
  async openSession(file) {
    const talk = this.#talk;
    hideProblem();
    this.setState("loading");
    try {
      const session = await talk.open(file);
      if (talk === this.#talk) await this.#showSession(talk, session);
    } catch (error) {
      if (talk === this.#talk) showProblem(faultWords(error));
    } finally {
      if (talk === this.#talk) this.setState("ready");
    }
  }

  async #showSession(talk, session) {
    this.#show(tree.fromMessages(session.messages));
    talk.adopt(this.conversation);
    await this.#save();
    const figures = { n: session.n_tokens, cached: session.cached_rows };
    at("figures").textContent = text("session.figures", figures);
    if (session.note) showProblem(text("session.note", { note: session.note }));
  }

  /** The session's file of the open conversation. */
  saveSession() {
    return this.#talk.save(this.conversation);
  }

  /** Keeps imported conversations and shows the last of them. */
  async adopt(conversations) {
    await this.rest();
    await this.#shelf.put(...conversations);
    if (conversations.length) await this.select(conversations.at(-1).id);
  }

  all() {
    return this.#shelf.all();
  }

  async rename(id, title) {
    const found = id === this.conversation.id ? this.conversation : await this.#shelf.get(id);
    if (!found) return;
    tree.setField(found, "title", title);
    this.#view.showTitle(this.conversation);
    if (found.nodes.length) await this.#save(found);
  }

  async delete(id) {
    if (id === this.conversation.id) await this.rest();
    await this.#shelf.remove(id);
    if (id === this.conversation.id) this.begin();
    await this.list();
  }

  async deleteAll() {
    await this.rest();
    await this.#shelf.clear();
    this.begin();
    await this.list();
  }

  setSystem(system) {
    tree.setField(this.conversation, "system", system);
    keep("system", system);
    if (this.conversation.nodes.length) void this.#save();
  }

  setSetting(name, value) {
    this.settings[name] = value;
    keepSetting(name, value);
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
  list() {
    return this.#shelf.show(this.conversation.id);
  }

  #show(conversation) {
    this.conversation = conversation;
    at("figures").textContent = "";
    showAddress(conversation.nodes.length ? conversation.id : "");
    this.refresh();
    this.#view.toEnd();
  }

  /** Shows the branch again, as after a change of it. */
  refresh() {
    this.#view.show(this.conversation);
    this.#showStarters();
  }

  /** Shows the branch and the state in the language that the page has now. */
  translate() {
    this.refresh();
    this.setState(this.state);
  }

  #showStarters() {
    this.#view.showStarters(this.state === "ready", this.conversation);
  }

  async #save(conversation = this.conversation) {
    if (!this.#shelf.keeps(conversation)) return;
    conversation.changed = Date.now();
    if (conversation === this.conversation) showAddress(conversation.id);
    await this.#put(conversation).catch(noteFault);
  }

  /** Stores a conversation and takes over the changes of other tabs. */
  async #put(conversation) {
    const [stored] = await this.#shelf.put(conversation);
    this.#takeOver(conversation, stored);
    await this.list();
  }

  async #changedElsewhere(id) {
    const { conversation } = this;
    const isMine = (id ?? conversation.id) === conversation.id && this.#shelf.keeps(conversation);
    if (isMine && conversation.nodes.length) {
      const stored = await this.#shelf.changed(conversation);
      if (stored !== null) this.#takeOver(conversation, stored);
    }
    await this.list();
  }

  /** Unites a conversation with its stored state; without one it was deleted, and a new one begins. */
  #takeOver(conversation, stored) {
    const before = idsOf(conversation);
    if (stored) Object.assign(conversation, tree.merged(conversation, stored));
    if (conversation !== this.conversation) return;
    if (!stored) return this.#leave();
    if (idsOf(conversation) !== before) return this.refresh();
    this.#view.showTitle(conversation);
  }

  #leave() {
    this.stop();
    this.#view.drop();
    this.begin();
    tell(text("store.deleted"));
  }
}

const idsOf = ({ nodes }) => nodes.map(({ id }) => id).join();
