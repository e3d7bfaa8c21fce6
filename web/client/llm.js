// A loaded model.

import { requestError } from "./errors.js";
import { Session } from "./session.js";
import { Stream } from "./stream.js";

/** @typedef {import("./calls.js").Calls} Calls */

/** A model in a worker. Options of requests have Python's names: `max_tokens`, `json_schema`, `tools`... */
export class LLM {
  #calls;

  /**
   * @param {Calls} calls
   * @param {object} info {model, backend, device, why, context, weight_bytes, has_template}; `why` is the
   *   reason for a backend other than WebGPU
   */
  constructor(calls, info) {
    this.#calls = calls;
    this.info = info;
  }

  /**
   * Generates an answer token by token.
   * @param {string | number[] | object[]} prompt text, token ids, or messages for the chat template
   * @param {object} [options] of the request; `signal` cancels it
   * @returns {Stream}
   */
  stream(prompt, { signal, ...options } = {}) {
    return new Stream(this.#calls, "generate", { prompt, options }, { signal });
  }

  /**
   * Generates the whole answer to messages.
   * @param {object[]} messages
   * @param {object} [options] as of `stream`
   * @returns {Promise<object>} {text, reasoning, tool_calls, token_ids, finish_reason, usage, timings, seed, id}
   */
  async chat(messages, options = {}) {
    if (!Array.isArray(messages)) {
      throw requestError("messages", "chat() takes a list of {role, content}; for plain text use stream()");
    }
    return this.stream(messages, options).completion;
  }

  /**
   * Embeddings of texts. Rejects with a RequestError for a model that makes none.
   * @param {string[]} texts
   * @param {{normalize?: boolean, dimensions?: number, prompt?: string, truncate?: boolean}} [options]
   * @returns {Promise<number[][]>}
   */
  async embed(texts, options = {}) {
    return this.#call("embed", { texts, options });
  }

  /**
   * The relevance of each document to the query, 0 to 1. Rejects with a RequestError for a model without a
   * ranking head.
   * @param {string} query
   * @param {string[]} documents
   * @param {{normalize?: boolean, truncate?: boolean}} [options]
   * @returns {Promise<number[]>}
   */
  async rerank(query, documents, options = {}) {
    return this.#call("rerank", { query, documents, options });
  }

  /**
   * Gives feedback on an answer of this page; it acts at once, until the page is closed.
   * @param {object | string} completion an answer, or its `id`
   * @param {1 | -1} rating
   * @param {{correction?: string}} [options] the right answer
   * @returns {Promise<number>} the item's number, for `forget`
   */
  async feedback(completion, rating, { correction = null } = {}) {
    return this.#call("feedback", { completion: completion.id ?? completion, rating, correction });
  }

  /** Takes an item of feedback back. */
  async forget(item) {
    return this.#call("forget", { item });
  }

  /**
   * Token ids of a text, without BOS.
   * @param {string} text
   * @param {{special?: boolean}} [options] `special`: control tokens written in the text count
   * @returns {Promise<number[]>}
   */
  async tokenize(text, { special = false } = {}) {
    return this.#call("tokenize", { text, special });
  }

  /** Text of token ids, without control tokens. */
  async detokenize(tokenIds) {
    return this.#call("detokenize", { token_ids: [...tokenIds] });
  }

  /**
   * The bytes of each token, of control tokens too; a character may be split between tokens.
   * @param {Iterable<number>} tokenIds
   * @returns {Promise<number[][]>}
   */
  async tokenBytes(tokenIds) {
    return this.#call("token_bytes", { token_ids: [...tokenIds] });
  }

  /**
   * The number of tokens of a prompt, with those of the chat template.
   * @param {string | number[] | object[]} prompt
   * @param {object} [options] those that change the prompt: `tools`, `variables`...
   * @returns {Promise<number>}
   */
  async count(prompt, options = {}) {
    return this.#call("count", { prompt, options });
  }

  /**
   * A new conversation that keeps its rows between turns.
   * @param {object} [options] `system` text, first `messages`, and default options of every turn
   * @returns {Promise<Session>}
   */
  async session({ system = null, messages = [], ...options } = {}) {
    return Session.made(this.#calls, "session", { system, messages, options });
  }

  /**
   * The session of a file that `Session.save` made here, in a terminal or on a server.
   * @param {Blob | FileSystemFileHandle | string} file or its URL
   * @returns {Promise<Session>}
   */
  async restore(file) {
    return Session.made(this.#calls, "restore", { file });
  }

  /**
   * Loads a LoRA adapter: a GGUF file, or PEFT's or mlx-lm's safetensors with `config`, their
   * adapter_config.json. The request option `adapter` names it; with `applies` it acts on requests that name
   * none.
   * @param {{name: string, file?: Blob | FileSystemFileHandle, url?: string,
   *   config?: Blob | FileSystemFileHandle | string, scale?: number, applies?: boolean}} adapter
   * @returns {Promise<string>} its name
   */
  async loadAdapter({ name, file, url, config = null, scale = 1, applies = false }) {
    return this.#call("load_adapter", { name, file: file ?? url, config, scale, applies });
  }

  /**
   * Unloads an adapter; answers that use it go on.
   * @param {string} name
   */
  async unloadAdapter(name) {
    return this.#call("unload_adapter", { name });
  }

  /**
   * The loaded adapters.
   * @returns {Promise<{name: string, rank: number, bytes: number, scale: number, applied: number}[]>}
   */
  async adapters() {
    return this.#call("adapters", {});
  }

  /**
   * Facts for the glass box (core/camelid/page/glass.py).
   * @param {"plan" | "source" | "profile" | "cache" | "token_texts" | "parity"} what
   * @param {object} [given] arguments
   * @param {(progress: {done: number, total: number}) => void} [onProgress] of parity
   */
  async examine(what, given = {}, onProgress = () => {}) {
    return this.#calls.call(what, given, onProgress).result;
  }

  /** Ends the worker and frees the device. Running and later requests fail. */
  async close() {
    this.#calls.end(requestError("llm", "this model was closed; load the model again"));
  }

  #call(method, given) {
    return this.#calls.call(method, given).result;
  }
}
