// One answer, event by event.

/** @typedef {import("./calls.js").Calls} Calls */

const ACKNOWLEDGED = 16; // events that one message acknowledges; a fraction of WINDOW in page/answer.py

/**
 * An answer as it is generated: an asynchronous iterable of events, with the whole answer at the end. A
 * reader that pauses also pauses the engine, after 64 events. Leaving the loop cancels the request.
 */
export class Stream {
  #calls;
  #id;
  #events = []; // events that the reader has not taken
  #isOpen = true;
  #isDrained = false; // true once `completion` is wanted: the engine need not wait for a reader
  #nRead = 0; // events taken since the last acknowledgement
  #wake = () => {};
  #completion;

  /**
   * @param {Calls} calls
   * @param {string} method
   * @param {object} given arguments of the method
   * @param {object} [how]
   * @param {AbortSignal} [how.signal] cancels the request
   * @param {(result: object) => object} [how.settle] makes the completion from the method's result
   */
  constructor(calls, method, given, { signal, settle = (result) => result } = {}) {
    this.#calls = calls;
    const { id, result } = calls.call(method, given, ({ event }) => this.#push(event));
    this.#id = id;
    const abort = () => this.cancel();
    signal?.addEventListener("abort", abort);
    this.#completion = result.then(settle).finally(() => {
      signal?.removeEventListener("abort", abort);
      this.#isOpen = false;
      this.#wake();
    });
    this.#completion.catch(() => {}); // the loop throws it, too
    if (signal?.aborted) abort();
  }

  /**
   * The whole answer; rejects with the request's error. A cancelled answer has the text so far and the finish
   * reason "cancelled".
   * @returns {Promise<object>}
   */
  get completion() {
    this.#isDrained = true;
    this.#acknowledge(this.#events.length);
    return this.#completion;
  }

  /** Ends the answer within one step. */
  cancel() {
    this.#calls.tell("cancel", this.#id);
  }

  /** @yields {object} the events in order */
  async *[Symbol.asyncIterator]() {
    try {
      while (true) {
        while (this.#events.length) yield this.#take();
        if (!this.#isOpen) break;
        await new Promise((next) => (this.#wake = next));
      }
    } finally {
      this.cancel();
    }
    await this.#completion; // throws the request's error
  }

  #push(event) {
    this.#events.push(event);
    if (this.#isDrained) this.#acknowledge(1);
    this.#wake();
  }

  #take() {
    const event = this.#events.shift();
    if (!this.#isDrained) this.#acknowledge(1);
    return event;
  }

  #acknowledge(n) {
    this.#nRead += n;
    if (this.#nRead < ACKNOWLEDGED) return;
    this.#calls.tell("read", this.#id, { n: this.#nRead });
    this.#nRead = 0;
  }
}
