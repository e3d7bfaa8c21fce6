// One worker for all tabs that open the same model. The tab that holds the model's lock is the host: it runs
// the worker, and passes the calls of the other tabs on. When it is closed, the next tab becomes the host. A
// tab whose host does not answer goes on with a worker of its own. So does one whose messages were lost:
// Chromium drops those to a page that is paused in a debugger.

import { Pulse } from "./pulse.js";

const BUILD = "unbuilt"; // web/build.py writes the build's stamp: tabs of two builds share nothing
const SPAN = 2 ** 32; // call ids of a tab; those of tab n begin at n * SPAN, the host's at 0
const TABS = 2 ** 20; // numbers of tabs, chosen at random: ids stay below 2 ** 53
const LAST_ID = SPAN - 1; // of calls whose results nobody awaits
const ALL = -1;
const MAKE_SESSIONS = ["session", "restore", "fork"]; // a session's handle is the id of the call that made it
const CLOSED = "the tab that ran this model stopped it";
const SILENT = "this tab lost touch with the tab that runs the model: one of them was frozen or paused";
// Texts by key: a page may have them in its language.
const TEXTS = {
  "tab.closed.load": `${CLOSED}; this tab loads it again`,
  "tab.closed.loaded": `${CLOSED}; it is loaded again`,
  "tab.closed.ask": `${CLOSED}, and another loads it; ask again`,
  "tab.silent.load": `${SILENT}; this tab loads the model itself`,
  "tab.silent.loaded": `${SILENT}; this tab runs the model itself`,
  "tab.silent.ask": `${SILENT}; this tab loads the model itself, ask again`,
};

/**
 * The name under which tabs share a model; null if they cannot.
 * @param {(string | Blob | FileSystemFileHandle)[]} files
 * @param {object} options of the load
 * @returns {Promise<string | null>}
 */
export async function sharedName([file, ...others], options) {
  if (others.length || !globalThis.navigator?.locks) return null;
  const place = typeof file === "string" ? file : await storedPlace(file);
  return place ? `camelid-model ${JSON.stringify([BUILD, place, options])}` : null;
}

/** Path, size and time of a file in the site's own storage; null for any other. */
async function storedPlace(handle) {
  const path = handle.getFile && (await (await navigator.storage.getDirectory()).resolve(handle));
  if (!path) return null;
  const { size, lastModified } = await handle.getFile();
  return [...path, size, lastModified].join("/");
}

/** The part of Worker that calls.js uses, over the worker of whichever tab is the host. */
export class TabWorker {
  onmessage = null;
  onerror = null;
  onmessageerror = null;
  #start;
  #role = null; // a Host, a Guest or a Worker
  #early = []; // messages before the role is known
  #load = null; // the message that loads the model
  #open = new Set(); // ids of calls without an end
  #lost = "closed"; // what became of the last host: "closed" or "silent"
  #isEnded = false;
  #leave = new AbortController();

  /**
   * @param {Promise<string | null>} name as of `sharedName`
   * @param {() => Worker} start
   */
  constructor(name, start) {
    this.#start = start;
    this.#begin(name).catch((error) => this.#fail(error));
  }

  postMessage(message) {
    if (message.method === "load") this.#load = message;
    if (message.id) this.#open.add(message.id);
    if (this.#role) this.#role.postMessage(message);
    else this.#early.push(message);
  }

  terminate() {
    this.#isEnded = true;
    this.#leave.abort();
    this.#role?.terminate();
  }

  async #begin(name) {
    let shared = await name.catch(() => null);
    const none = () => (shared = null); // a browser that stores nothing for the site refuses locks, too
    const release = shared && (await held(shared, { ifAvailable: true }).catch(none));
    if (this.#isEnded) return release?.();
    if (!shared) this.#take(this.#worker());
    else if (release) this.#take(this.#host(shared, release));
    else await this.#visit(shared);
  }

  #worker() {
    const worker = this.#start();
    worker.onmessage = this.#tell;
    worker.onerror = this.#fail;
    worker.onmessageerror = (event) => this.onmessageerror?.(event);
    return worker;
  }

  #host(name, release) {
    try {
      return new Host(name, this.#worker(), release, this.#tell);
    } catch (error) {
      release();
      throw error;
    }
  }

  /** Uses the host's worker until the host is gone; then this tab is the host. */
  async #visit(name) {
    const guest = await Guest.enter(name, this.#tell, () => this.#follow("closed"));
    if (this.#isEnded) return guest.terminate();
    this.#take(guest);
    guest.watch(() => this.#open.size > 0, () => this.#desert(name));
    const release = await held(name, { signal: this.#leave.signal }).catch(() => null);
    if (!release) return; // this tab was closed before, or has left its host
    if (this.#role !== guest) return release();
    this.#replace(this.#host(name, release), "closed");
  }

  /** Leaves a host that does not answer. It still holds the lock, so nobody shares this tab's worker. */
  #desert(name) {
    this.#leave.abort();
    try {
      this.#replace(this.#host(`${name} ${crypto.randomUUID()}`, () => {}), "silent");
    } catch (error) {
      this.#fail(error);
    }
  }

  #replace(role, lost) {
    this.#role.terminate();
    this.#role = role;
    this.#follow(lost);
    this.#note("load");
  }

  #take(role) {
    this.#role = role;
    for (const message of this.#early.splice(0)) role.postMessage(message);
  }

  /** Goes on with a new host: it loads the model, and calls in progress fail. Sessions are gone. */
  #follow(lost) {
    this.#lost = lost;
    const key = `tab.${lost}.ask`;
    const error = { name: "BackendError", message: TEXTS[key], facts: { backend: "worker", key } };
    for (const id of [...this.#open].filter((id) => id !== this.#load?.id)) {
      this.#role.postMessage({ method: "cancel", of: id }); // the new host may have it already
      this.#tell({ data: { id, kind: "error", error } });
    }
    if (this.#load) this.#role.postMessage(this.#load);
  }

  #tell = (event) => {
    const { id, kind } = event.data;
    const isEnd = kind === "result" || kind === "error";
    if (!isEnd || this.#open.delete(id)) this.onmessage?.(event);
    else if (id === this.#load.id) this.#reloaded(event.data);
  };

  /** The end of a second load, which no call awaits. */
  #reloaded({ kind, error }) {
    if (kind === "error") this.#fail(error);
    else this.#note("loaded");
  }

  #note(what) {
    const key = `tab.${this.#lost}.${what}`;
    this.onmessage?.({ data: { kind: "notice", text: TEXTS[key], key } });
  }

  /** Reports an error, or an event with one. */
  #fail = (fault) =>
    this.onerror?.({ message: fault.message, preventDefault: () => fault.preventDefault?.() });
}

/**
 * A tab as the host knows it: ids of its open calls and of its sessions; numbers of its messages before the
 * first one that came here, of those that came, and of messages to it.
 * @typedef {{open: Set<number>, sessions: Set<number>, nBefore: number, nRead: number, nSent: number}} Known
 */

/** The tab with the worker. */
class Host {
  #worker;
  #channel;
  #release;
  #tell;
  #loads = []; // ids of the tabs' calls that load the model, the host's first
  #loaded = null; // the end of the load: its result or error
  #waiting = []; // calls before it
  #id = crypto.randomUUID();
  /** @type {Map<number, Known>} by the number of a tab */
  #guests = new Map();

  constructor(name, worker, release, tell) {
    [this.#worker, this.#release, this.#tell] = [worker, release, tell];
    worker.onmessage = (event) => this.#answer(event);
    this.#channel = new BroadcastChannel(name);
    this.#channel.onmessage = ({ data }) => data.from && this.#receive(name, data);
    this.#send(ALL, { kind: "host" });
  }

  postMessage(message) {
    this.#pass(message);
  }

  terminate() {
    this.#worker.terminate();
    this.#channel.close();
    this.#release();
  }

  /** Sends a message; `n` is its number among those to a tab. */
  #send(to, message, n = 0) {
    this.#channel.postMessage({ to, host: this.#id, n, message });
  }

  #receive(name, { from, n, message }) {
    if (message.method === "ping") return this.#answerPing(from, n);
    if (!this.#guests.has(from)) {
      this.#guests.set(from, { open: new Set(), sessions: new Set(), nBefore: n - 1, nRead: 0, nSent: 0 });
      void held(lockOf(name, from)).then((release) => release(this.#forget(from)));
    }
    const guest = this.#guests.get(from);
    const { open, sessions } = guest;
    guest.nRead += 1;
    if (message.id) open.add(message.id);
    if (MAKE_SESSIONS.includes(message.method)) sessions.add(message.id);
    this.#pass(message);
  }

  /** Gives a tab a sign of life, and tells whether all `n` messages of it have come. */
  #answerPing(from, n) {
    if (n && !this.#guests.has(from)) return; // from a guest of the last host, before it knows this one
    const { nBefore, nRead, nSent } = this.#guests.get(from) ?? { nBefore: 0, nRead: 0, nSent: 0 };
    this.#send(from, { kind: "pong", isWhole: nBefore + nRead === n }, nSent);
  }

  /** Ends the calls and sessions of a tab that is gone. */
  #forget(from) {
    const { open, sessions } = this.#guests.get(from);
    this.#guests.delete(from);
    for (const of of open) this.#pass({ method: "cancel", of });
    for (const session of sessions) this.#pass({ method: "release", session, id: from * SPAN + LAST_ID });
  }

  /** Passes a call on: the model is loaded once, and other calls wait for it. */
  #pass(message) {
    if (message.method === "load") {
      // A tab that sends it again has given up its calls.
      const isKept = ({ id, of }) => tabOf(id ?? of) !== tabOf(message.id);
      this.#waiting = this.#waiting.filter(isKept);
      this.#loads.push(message.id);
      if (this.#loads.length === 1) this.#worker.postMessage(message);
      else if (this.#loaded) this.#deliver({ ...this.#loaded, id: message.id });
    } else if (!this.#loaded) this.#waiting.push(message);
    else if (this.#loaded.kind === "result") this.#worker.postMessage(message);
    else if (message.id) this.#deliver({ ...this.#loaded, id: message.id });
  }

  #answer(event) {
    const { data } = event;
    if (data.kind === "thread") return this.#tell(event);
    if (data.kind === "notice") return this.#everyone(data);
    if (data.id !== this.#loads[0]) return this.#deliver(data);
    for (const id of this.#loads) this.#deliver({ ...data, id });
    if (data.kind === "progress") return;
    this.#loaded = data;
    for (const message of this.#waiting.splice(0)) this.#pass(message);
  }

  #everyone(message) {
    this.#tell({ data: message });
    this.#send(ALL, message);
  }

  /** Sends an answer to the tab of its id. */
  #deliver(message) {
    const tab = tabOf(message.id);
    if (!tab) return this.#tell({ data: message });
    const guest = this.#guests.get(tab);
    if (!guest) return; // it is gone
    if (message.kind === "result" || message.kind === "error") guest.open.delete(message.id);
    guest.nSent += 1;
    this.#send(tab, { ...message, id: message.id % SPAN }, guest.nSent);
  }
}

/** A tab that uses the host's worker. */
class Guest {
  #number = 1 + Math.floor(Math.random() * (TABS - 1));
  #channel;
  #release;
  #pulse = null; // of the host
  #nSent = 0; // messages to hosts
  #host = ""; // the last one that sent a message
  #nRead = 0; // messages of it

  /** Takes a lock of its own before the first call; its release is the host's sign that this tab is gone. */
  static async enter(name, tell, follow) {
    const guest = new Guest();
    guest.#release = await held(lockOf(name, guest.#number));
    guest.#channel = new BroadcastChannel(name);
    guest.#channel.onmessage = ({ data }) => {
      if (data.to === ALL && data.message.kind === "host") follow();
      else if (data.to === ALL) tell({ data: data.message });
      else if (data.to === guest.#number) guest.#receive(data, tell);
    };
    return guest;
  }

  /** Calls `onLost` if the host gives no sign of life while this tab waits for it, or has lost a message. */
  watch(isNeeded, onLost) {
    const ask = () => this.#send({ method: "ping" });
    this.#pulse = new Pulse({ isNeeded, ask, onSilent: onLost });
  }

  /** Messages keep their order: all before a sign of life must have come, here and there. */
  #receive({ host, n, message }, tell) {
    if (host !== this.#host) [this.#host, this.#nRead] = [host, 0];
    if (message.kind !== "pong") {
      this.#nRead += 1;
      tell({ data: message });
    } else if (message.isWhole && n === this.#nRead) this.#pulse.beat();
    else this.#pulse.lose();
  }

  /** Sends a message with the number of those so far. */
  #send(message) {
    this.#channel.postMessage({ from: this.#number, n: this.#nSent, message });
  }

  postMessage(message) {
    this.#nSent += 1;
    const own = { ...message };
    for (const field of ["id", "of", "session"]) {
      if (own[field] !== undefined) own[field] += this.#number * SPAN;
    }
    this.#send(own);
  }

  terminate() {
    this.#pulse?.end();
    this.#channel.close();
    this.#release();
  }
}

/** The number of the tab of a call. */
function tabOf(id) {
  return Math.floor(id / SPAN);
}

function lockOf(name, number) {
  return `${name} ${number}`;
}

/** Waits for a lock; resolves to the function that releases it, or to null if it must be free and is not. */
function held(name, options = {}) {
  return new Promise((resolve, reject) => {
    const hold = (lock) => lock && new Promise((release) => resolve(release));
    navigator.locks.request(name, options, (lock) => hold(lock) ?? resolve(null)).catch(reject);
  });
}
