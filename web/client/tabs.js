// One worker for all tabs that open the same model. The tab that holds the model's lock is the host: it runs
// the worker, and passes the calls of the other tabs on. When it is closed, the next tab becomes the host.

const BUILD = "unbuilt"; // web/build.py writes the build's stamp: tabs of two builds share nothing
const SPAN = 2 ** 32; // call ids of a tab; those of tab n begin at n * SPAN, the host's at 0
const TABS = 2 ** 20; // numbers of tabs, chosen at random: ids stay below 2 ** 53
const LAST_ID = SPAN - 1; // of calls whose results nobody awaits
const ALL = -1;
const MAKE_SESSIONS = ["session", "restore", "fork"]; // a session's handle is the id of the call that made it
const STOPPED = "the tab that ran this model stopped it";

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
    const guest = await Guest.enter(name, this.#tell, () => this.#follow());
    if (this.#isEnded) return guest.terminate();
    this.#take(guest);
    const release = await held(name, { signal: this.#leave.signal }).catch(() => null);
    if (!release) return; // this tab was closed before
    guest.terminate();
    this.#role = this.#host(name, release);
    this.#note("this tab loads it again");
    this.#follow();
  }

  #take(role) {
    this.#role = role;
    for (const message of this.#early.splice(0)) role.postMessage(message);
  }

  /** Goes on with a new host: it loads the model, and calls in progress fail. Sessions are gone. */
  #follow() {
    const message = `${STOPPED}, and another loads it; ask again`;
    const error = { name: "BackendError", message, facts: { backend: "worker" } };
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
    else this.#note("it is loaded again");
  }

  #note(text) {
    this.onmessage?.({ data: { kind: "notice", text: `${STOPPED}; ${text}` } });
  }

  /** Reports an error, or an event with one. */
  #fail = (fault) =>
    this.onerror?.({ message: fault.message, preventDefault: () => fault.preventDefault?.() });
}

/** The tab with the worker. */
class Host {
  #worker;
  #channel;
  #release;
  #tell;
  #loads = []; // ids of the tabs' calls that load the model, the host's first
  #loaded = null; // the end of the load: its result or error
  #waiting = []; // calls before it
  #guests = new Map(); // number of a tab -> ids of its open calls, and of its sessions

  constructor(name, worker, release, tell) {
    [this.#worker, this.#release, this.#tell] = [worker, release, tell];
    worker.onmessage = (event) => this.#answer(event);
    this.#channel = new BroadcastChannel(name);
    this.#channel.onmessage = ({ data: { from, message } }) => from && this.#receive(name, from, message);
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

  #send(to, message) {
    this.#channel.postMessage({ to, message });
  }

  #receive(name, from, message) {
    if (!this.#guests.has(from)) {
      this.#guests.set(from, { open: new Set(), sessions: new Set() });
      void held(lockOf(name, from)).then((release) => release(this.#forget(from)));
    }
    const { open, sessions } = this.#guests.get(from);
    if (message.id) open.add(message.id);
    if (MAKE_SESSIONS.includes(message.method)) sessions.add(message.id);
    this.#pass(message);
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
    if (message.kind === "result" || message.kind === "error") this.#guests.get(tab)?.open.delete(message.id);
    if (tab) this.#send(tab, { ...message, id: message.id % SPAN });
    else this.#tell({ data: message });
  }
}

/** A tab that uses the host's worker. */
class Guest {
  #number = 1 + Math.floor(Math.random() * (TABS - 1));
  #channel;
  #release;

  /** Takes a lock of its own before the first call; its release is the host's sign that this tab is gone. */
  static async enter(name, tell, follow) {
    const guest = new Guest();
    guest.#release = await held(lockOf(name, guest.#number));
    guest.#channel = new BroadcastChannel(name);
    guest.#channel.onmessage = ({ data: { to, message } }) => {
      if (to !== guest.#number && to !== ALL) return;
      if (message.kind === "host") follow();
      else tell({ data: message });
    };
    return guest;
  }

  postMessage(message) {
    const own = { ...message };
    for (const field of ["id", "of", "session"]) {
      if (own[field] !== undefined) own[field] += this.#number * SPAN;
    }
    this.#channel.postMessage({ from: this.#number, message: own });
  }

  terminate() {
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
