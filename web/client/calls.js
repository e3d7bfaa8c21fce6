// Calls to the worker: each has an id, gets any number of messages, and ends with a result or an error.

import { CamelidError } from "./errors.js";
import { relay } from "./threads.js";

/**
 * @typedef {object} Call
 * @property {number} id
 * @property {Promise<any>} result
 */

/** The calls over one worker. */
export class Calls {
  #worker;
  /** @type {Set<Worker>} compute workers of the worker */
  #threads = new Set();
  #lastId = 0;
  /** @type {Map<number, {resolve: Function, reject: Function, listen: (message: any) => void}>} */
  #open = new Map();
  /** @type {Error | null} error that ended the worker */
  #fault = null;
  /** @type {(text: string, key?: string) => void} gets notices about the device or tabs, of no call */
  onNotice = () => {};

  /** @param {Worker} worker */
  constructor(worker) {
    this.#worker = worker;
    worker.onmessage = ({ data }) => this.#receive(data);
    worker.onerror = (event) => {
      event.preventDefault?.(); // the error reaches the caller, and needs no other handler
      this.end(startError(event.message));
    };
    worker.onmessageerror = () => this.end(startError("it sent a message that cannot be read"));
  }

  /**
   * Calls a method of the worker.
   * @param {string} method
   * @param {object} [given] arguments
   * @param {(message: any) => void} [listen] gets messages before the end: progress, events
   * @returns {Call}
   */
  call(method, given = {}, listen = () => {}) {
    const id = (this.#lastId += 1);
    const result = new Promise((resolve, reject) => {
      if (this.#fault) throw this.#fault;
      this.#worker.postMessage({ ...given, id, method }); // throws for a value that cannot be cloned
      this.#open.set(id, { resolve, reject, listen });
    });
    return { id, result };
  }

  /** Sends a message without an answer, about the running call `of`. */
  tell(method, of, given = {}) {
    if (this.#open.has(of)) this.#worker.postMessage({ ...given, method, of });
  }

  /** Ends the worker; open and later calls fail with `error`. */
  end(error) {
    this.#fault ??= error;
    for (const worker of [this.#worker, ...this.#threads]) worker.terminate();
    for (const { reject } of this.#open.values()) reject(this.#fault);
    this.#open.clear();
  }

  #receive(message) {
    if (message.kind === "notice") return this.onNotice(message.text, message.key);
    if (message.kind === "thread") return relay(message, this.#threads);
    const call = this.#open.get(message.id);
    if (!call) return;
    if (message.kind !== "result" && message.kind !== "error") return call.listen(message);
    this.#open.delete(message.id);
    if (message.kind === "result") call.resolve(message.value);
    else call.reject(new CamelidError(message.error));
  }
}

function startError(reason) {
  const message = `the worker ended: ${reason || "its script could not be loaded"}; load the model again`;
  return new CamelidError({ name: "BackendError", message, facts: { backend: "worker" } });
}
