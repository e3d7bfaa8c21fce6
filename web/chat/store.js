// Conversations in IndexedDB. Tabs tell each other of changes.

import { openDB } from "../vendor/idb.js";
import { damageOf } from "./checks.js";
import { merged } from "./tree.js";

/** @typedef {import("./tree.js").Conversation} Conversation */

const NAME = "camelid-chat";
const CONVERSATIONS = "conversations";
const VERSION = 1;
const KEPT_DAYS = 30; // of a deletion's record: a tab that still shows the conversation is closed by then

/**
 * The conversations of this browser. A deleted one leaves {id, deleted}: a tab that still shows it cannot
 * bring it back. Such a record has no `changed`, so that the index does not list it; it is kept for 30 days.
 */
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
    const store = new Store(await openDB(NAME, VERSION, { upgrade }));
    store.#prune(Date.now() - KEPT_DAYS * 86_400_000).catch(() => {}); // the next visit tries it again
    return store;
  }

  /** Forgets the conversations that were deleted before a time. */
  async #prune(before) {
    const { store, done } = this.#database.transaction(CONVERSATIONS, "readwrite");
    done.catch(() => {}); // awaited below, unless a request fails before
    const [all, listed] = await Promise.all([store.getAllKeys(), store.index("changed").getAllKeys()]);
    const known = new Set(listed);
    const forget = async (id) => (await store.get(id)).deleted < before && store.delete(id);
    await Promise.all([...all.filter((id) => !known.has(id)).map(forget), done]);
  }

  /** @returns {Promise<Conversation[]>} all conversations, the last changed first */
  async list() {
    return (await this.#database.getAllFromIndex(CONVERSATIONS, "changed")).reverse();
  }

  /** @returns {Promise<Conversation | undefined>} undefined for one that is unknown or deleted */
  async get(id) {
    const found = await this.#database.get(CONVERSATIONS, id);
    return found?.deleted ? undefined : found;
  }

  /**
   * Stores conversations, united with the states that other tabs stored, in one transaction: all or none.
   * @param {...Conversation} conversations
   * @returns {Promise<(Conversation | null)[]>} the united ones; null for one that is deleted
   */
  async put(...conversations) {
    const united = await this.#change((store) => conversations.map((one) => unite(store, one)));
    for (const { id } of conversations) this.#channel.postMessage(id);
    return united;
  }

  async remove(id) {
    await this.#change((store) => [store.put(deleted(id))]);
    this.#channel.postMessage(id);
  }

  async clear() {
    await this.#change((store) => [removeAll(store)]);
    this.#channel.postMessage(null);
  }

  /** Calls `listen` with the id of a conversation that another tab has changed; null for all. */
  onChange(listen) {
    this.#channel.onmessage = ({ data }) => listen(data);
  }

  /** Results of the requests that `work` makes in one transaction. */
  async #change(work) {
    const transaction = this.#database.transaction(CONVERSATIONS, "readwrite");
    const [results] = await Promise.all([Promise.all(work(transaction.store)), transaction.done]);
    return results;
  }
}

/** Stores a conversation, united with the stored one unless that is damaged. */
async function unite(store, mine) {
  const theirs = await store.get(mine.id);
  if (theirs?.deleted) return null;
  const one = theirs && !damageOf(theirs) ? merged(mine, theirs) : mine;
  await store.put(one);
  return one;
}

async function removeAll(store) {
  for (const id of await store.getAllKeys()) await store.put(deleted(id));
}

const deleted = (id) => ({ id, deleted: Date.now() });

/** A store for browsers that keep no data: conversations end with the tab. */
export class TabStore {
  #held = new Map();

  async list() {
    return [...this.#held.values()].sort((a, b) => b.changed - a.changed);
  }

  async get(id) {
    return this.#held.get(id);
  }

  async put(...conversations) {
    for (const one of conversations) this.#held.set(one.id, one);
    return conversations;
  }

  async remove(id) {
    this.#held.delete(id);
  }

  async clear() {
    this.#held.clear();
  }

  onChange() {}
}
