// The elements of the open conversation: messages of the shown branch, the growing answer, the title.

import { at } from "./elements.js";
import { Follower } from "./follower.js";
import { showFigures } from "./status.js";
import { text } from "./texts.js";
import { LiveTurn, turnElement } from "./transcript.js";
import { path, place } from "./tree.js";

/** @typedef {import("./tree.js").Conversation} Conversation */
/** @typedef {import("./tree.js").Node} Node */

/** The page's view of one conversation. */
export class View {
  #live = null; // the answer that is generated
  #follower = new Follower();

  /** Shows the branch again. Fields of edits and the growing answer stay. */
  show(conversation) {
    const focused = document.activeElement;
    const edits = [...at("transcript").querySelectorAll(":scope > .editing")];
    const open = new Map(edits.map((element) => [element.dataset.id, element]));
    const turns = path(conversation).map((node) => open.get(node.id) ?? turnElement(conversation, node));
    at("transcript").replaceChildren(...turns, ...(this.#live ? [this.#live.element] : []));
    if (focused?.isConnected && focused.closest(".editing")) focused.focus();
    this.showTitle(conversation);
  }

  /** Shows a new last message; the growing answer ends, and the message takes its place in one step. */
  add(conversation, node) {
    const growing = this.#live?.element;
    this.#live?.end();
    this.#live = null;
    if (place(conversation, node).n > 1) return this.show(conversation);
    const element = turnElement(conversation, node);
    if (growing) growing.replaceWith(element);
    else at("transcript").append(element);
    this.showTitle(conversation);
  }

  /** Shows a growing answer, which takes events by `push`. */
  begin() {
    this.#live = new LiveTurn((turn) => showFigures(turn.n, turn.rate));
    at("transcript").append(this.#live.element);
  }

  push(event) {
    this.#live?.push(event);
  }

  /** Removes the growing answer. */
  drop() {
    this.#live?.end();
    this.#live?.element.remove();
    this.#live = null;
  }

  /** Goes to the end of the page, and follows it. */
  toEnd() {
    this.#follower.toEnd();
  }

  showTitle(conversation) {
    const title = conversation.title || text("untitled");
    at("title").textContent = title;
    document.title = `${title} · Camelid`;
  }

  /** Shows questions to begin with in an empty conversation. */
  showStarters(isReady, { nodes }) {
    at("starters").hidden = !isReady || nodes.length > 0 || Boolean(this.#live);
  }
}

/** Names a conversation in the page's address; "" for none. */
export function showAddress(id) {
  const address = new URL(location.href);
  address.hash = id;
  history.replaceState(null, "", address);
}
