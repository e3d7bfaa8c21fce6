// An index of sentences: embeddings that a loaded model makes, a batch at a time.

import { load } from "../client/camelid.js";
import { ranked } from "./rank.js";

const BATCH = 40; // texts a call: each call ends with a report of progress
const AT_ONCE = 16; // texts that share a step

/** Sentences with their embeddings. */
export class Index {
  #llm;
  #sentences;
  #embeddings;

  constructor(llm, sentences, embeddings) {
    [this.#llm, this.#sentences, this.#embeddings] = [llm, sentences, embeddings];
  }

  /**
   * Loads a model and embeds sentences.
   * @param {File} model
   * @param {string[]} sentences
   * @param {object} options of `load`; its signal stops the embeddings, too
   * @param {(done: number, total: number) => void} onProgress of the embeddings
   * @returns {Promise<Index>} rejects with CamelidError, as for a model that makes no embeddings
   */
  static async made(model, sentences, options, onProgress) {
    const llm = await load(model, { parallel: AT_ONCE, ...options });
    try {
      const embeddings = [];
      while (embeddings.length < sentences.length) {
        onProgress(embeddings.length, sentences.length);
        const batch = sentences.slice(embeddings.length, embeddings.length + BATCH);
        embeddings.push(...(await llm.embed(batch)));
        options.signal?.throwIfAborted();
      }
      return new Index(llm, sentences, embeddings);
    } catch (error) {
      void llm.close();
      throw error;
    }
  }

  /** {model, backend, device, why, ...} of the loaded model. */
  get info() {
    return this.#llm.info;
  }

  /**
   * The sentences closest to a query in meaning.
   * @param {string} query
   * @param {number} [most]
   * @returns {Promise<{sentence: string, score: number}[]>}
   */
  async search(query, most = 10) {
    const [embedding] = await this.#llm.embed([query], { truncate: true });
    const found = ranked(embedding, this.#embeddings, most);
    return found.map(({ index, score }) => ({ sentence: this.#sentences[index], score }));
  }

  close() {
    return this.#llm.close();
  }
}
