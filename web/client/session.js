// A conversation that the model remembers: its rows stay in the prefix cache, and a file can keep them.

import { Stream } from "./stream.js";

/** @typedef {import("./calls.js").Calls} Calls */

/**
 * One conversation. The fields are its state after the latest turn: `id`, `messages`, `options`, `note`,
 * `n_tokens`, `cached_rows`, and `n_forgotten`, the number of oldest messages that no longer fit the context.
 */
export class Session {
  #calls;
  #handle;

  /**
   * @param {Calls} calls
   * @param {number} handle
   * @param {object} state
   */
  constructor(calls, handle, state) {
    this.#calls = calls;
    this.#handle = handle;
    Object.assign(this, state);
  }

  /**
   * Makes a session by a method of the worker.
   * @param {Calls} calls
   * @param {string} method
   * @param {object} given arguments of the method
   */
  static async made(calls, method, given) {
    const { id, result } = calls.call(method, given);
    return new Session(calls, id, await result);
  }

  /**
   * The answer to a user's text; to the messages as they are without a text.
   * @param {string | null} [text]
   * @param {object} [options] as of `LLM.stream`
   * @returns {Stream}
   */
  stream(text = null, { signal, ...options } = {}) {
    const given = { session: this.#handle, text, options };
    const settle = ({ session, ...answer }) => {
      Object.assign(this, session);
      return answer;
    };
    return new Stream(this.#calls, "turn", given, { signal, settle });
  }

  /** The whole answer to a user's text; see `stream`. */
  async chat(text = null, options = {}) {
    return this.stream(text, options).completion;
  }

  /** Replaces the conversation, for edits and for results of tools. */
  async setMessages(messages) {
    return this.#update("change", { changes: { messages } });
  }

  /** Sets the text of the leading system message; null removes the message. */
  async setSystem(system) {
    return this.#update("change", { changes: { system } });
  }

  /** Replaces the options that every turn has by default. */
  async setOptions(options) {
    return this.#update("change", { changes: { options } });
  }

  /** Reads the state again. Rejects if the session was closed, or its model was loaded again. */
  async refresh() {
    return this.#update("change", { changes: {} });
  }

  /** Clears the conversation; the system message and the options stay. */
  async reset() {
    return this.#update("reset");
  }

  /** A second session that continues from the same conversation. */
  async fork() {
    return Session.made(this.#calls, "fork", { session: this.#handle });
  }

  /**
   * The session's file, with the rows that are cached. `LLM.restore` continues from it without a prefill.
   * @returns {Promise<Blob>}
   */
  async save() {
    return this.#calls.call("save", { session: this.#handle }).result;
  }

  /** Frees the session. Later calls fail. */
  async close() {
    await this.#calls.call("release", { session: this.#handle }).result;
  }

  async #update(method, given = {}) {
    Object.assign(this, await this.#calls.call(method, { session: this.#handle, ...given }).result);
  }
}
