// Conversations in IndexedDB. Tabs tell each other of changes.

import { openDB } from "../vendor/idb.js";

/** @typedef {import("./tree.js").Conversation} Conversation */

const NAME = "camelid-chat";
const CONVERSATIONS = "conversations";
const VERSION = 1;

/** The conversations of this browser. */
export class Store {
  #database;
  #channel = new BroadcastChannel(NAME);

  constructor(database) {
    this.#database = database;
  }

  /** Opens the store. Rejects where the browser keeps no data, as in some private windows. */
  static async open() {
    const upgrade = (database) => {
      database.createObjectStore(CONVERSATIONS, { keyPath: "id" }).createIndex("changed", "changed");
    };
    return new Store(await openDB(NAME, VERSION, { upgrade }));
  }

  /** @returns {Promise<Conversation[]>} all conversations, the last changed first */
  async list() {
    return (await this.#database.getAllFromIndex(CONVERSATIONS, "changed")).reverse();
  }

  /** @returns {Promise<Conversation | undefined>} */
  async get(id) {
    return this.#database.get(CONVERSATIONS, id);
  }

  /** Keeps a conversation; its place in the list is that of the last change. */
  async put(conversation) {
    await this.#database.put(CONVERSATIONS, conversation);
    this.#channel.postMessage(conversation.id);
  }

  async remove(id) {
    await this.#database.delete(CONVERSATIONS, id);
    this.#channel.postMessage(id);
  }

  async clear() {
    await this.#database.clear(CONVERSATIONS);
    this.#channel.postMessage(null);
  }

  /** Calls `listen` with the id of a conversation that another tab has changed. */
  onChange(listen) {
    this.#channel.onmessage = ({ data }) => listen(data);
  }
}

/** A store for browsers that keep no data: conversations end with the tab. */
export class TabStore {
  #held = new Map();

  async list() {
    return [...this.#held.values()].sort((a, b) => b.changed - a.changed);
  }

  async get(id) {
    return this.#held.get(id);
  }

  async put(conversation) {
    this.#held.set(conversation.id, conversation);
  }

  async remove(id) {
    this.#held.delete(id);
  }

  async clear() {
    this.#held.clear();
  }

  onChange() {}
}
