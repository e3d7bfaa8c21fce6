// The chat's view of the store: kept conversations and those that leave no trace, damage, faults.

import { damageOf } from "./checks.js";
import { showList } from "./sidebar.js";
import { showNote, showProblem } from "./status.js";
import { text } from "./texts.js";

/** @typedef {import("./tree.js").Conversation} Conversation */

let hasFault = false; // of the store, in its note

/** Shows a fault of the store until a later change succeeds. */
export function noteFault({ message }) {
  hasFault = true;
  showNote(message, "store-note");
}

/** Hides the last fault: what the store keeps is whole again. A note about no store at all stays. */
function clearFault() {
  if (hasFault) showNote("", "store-note");
  hasFault = false;
}

export class Shelf {
  #store = null;
  #unkept = new WeakSet(); // conversations that leave no trace

  /** @param {(id: string | null) => Promise<void>} onChange another tab has changed a conversation, or all */
  open(store, onChange) {
    this.#store = store;
    store.onChange((id) => onChange(id).catch(noteFault));
  }

  /** Keeps no trace of a conversation. */
  exclude(conversation) {
    this.#unkept.add(conversation);
  }

  /** True if a conversation is to be stored, and there is a store. */
  keeps(conversation) {
    return Boolean(this.#store) && !this.#unkept.has(conversation);
  }

  /** A stored conversation; undefined if it is unknown, or damaged, which is shown. */
  async get(id) {
    const found = await this.#store.get(id);
    const where = found ? damageOf(found) : "";
    if (!where) return found;
    showProblem(text("store.damaged", { where }));
    return undefined;
  }

  /** The stored state for another tab's change: null if it is damaged, undefined if it was deleted. */
  async changed({ id }) {
    const stored = await this.#store.get(id);
    return stored && damageOf(stored) ? null : stored;
  }

  /** Stores conversations as `Store.put` does. */
  async put(...conversations) {
    const stored = await this.#store.put(...conversations);
    clearFault();
    return stored;
  }

  all() {
    return this.#store.list();
  }

  async remove(id) {
    await this.#store.remove(id);
    clearFault();
  }

  async clear() {
    await this.#store.clear();
    clearFault();
  }

  /** Shows the list of conversations. */
  async show(current) {
    if (this.#store) showList(await this.#store.list(), current);
  }
}
