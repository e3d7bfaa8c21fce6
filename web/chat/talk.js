// Answers of the model to a branch of a conversation, with the loop over tool calls.

import { imagesOf } from "./content.js";
import { definitions, MAX_ROUNDS, runCall } from "./tools.js";
import { messagesOf } from "./tree.js";

/** Options of every new session; settings and a session's file override them. */
const OPTIONS = { overflow: "shift", max_tokens: 1024 };

/**
 * @typedef {object} Listener
 * @property {() => void} begin an answer begins
 * @property {(event: object) => void} event a token of it
 * @property {(message: object, facts: object | null) => void} message an answer or a tool's result is
 *   complete; `facts` are {finish_reason, rounds}
 */

/** Facts of a tool's result whose call the visitor stopped. */
const STOPPED = { finish_reason: "cancelled" };

/** Talks to one loaded model. The model's session follows the branch that is shown. */
export class Talk {
  #llm;
  #session = null;
  #owner = null; // id of the session's conversation
  #stop = new AbortController();

  constructor(llm) {
    this.#llm = llm;
  }

  /**
   * Answers the shown branch of a conversation; runs the tools that the model calls and lets it go on.
   * @param {object} conversation whose branch grows by what `listener.message` adds
   * @param {{options: object, tools: string[]}} how
   * @param {Listener} listener
   * @returns {Promise<object>} the last answer, with usage and timings as fields of its own
   */
  async answer(conversation, { options, tools }, listener) {
    const { signal } = (this.#stop = new AbortController());
    for (let round = 1; ; round += 1) {
      const isLast = round > MAX_ROUNDS;
      const session = await this.#follow(conversation);
      const result = await this.#round(session, withTools(options, tools, isLast), signal, listener);
      if (isLast) result.rounds = MAX_ROUNDS;
      const message = session.messages.at(-1);
      listener.message(message, result);
      const calls = message.tool_calls ?? [];
      if (!tools.length || !calls.length || isLast || signal.aborted) return result;
      for (const call of calls) {
        const content = await runCall(call, tools, signal);
        listener.message({ role: "tool", tool_call_id: call.id, content }, signal.aborted ? STOPPED : null);
      }
      if (signal.aborted) return { ...result, ...STOPPED };
      delete options.tool_choice; // a demand holds for the first answer
    }
  }

  /** Ends the running answer within one step, and the call of a tool at once. */
  stop() {
    this.#stop.abort(new Error("the visitor stopped the call"));
  }

  /** Gives feedback on an answer by its id; it acts until the page is closed. */
  feedback(completion, rating, correction) {
    return this.#llm.feedback(completion, rating, { correction });
  }

  /** Opens a session's file; its conversation is `adopt`ed. */
  async open(file) {
    const opened = await this.#llm.restore(file);
    this.#leave();
    this.#session = opened;
    return opened;
  }

  /** Binds the opened session to its conversation. */
  adopt(conversation) {
    this.#owner = conversation.id;
  }

  /** The file of a conversation's session. */
  async save(conversation) {
    return (await this.#follow(conversation)).save();
  }

  /** The session of a conversation, with the messages of its shown branch. */
  async #follow(conversation) {
    const messages = messagesOf(conversation);
    if (this.#owner !== conversation.id || !(await this.#isOpen())) {
      this.#leave();
      this.#session = await this.#llm.session({ messages, ...OPTIONS });
      this.#owner = conversation.id;
    } else if (JSON.stringify(this.#session.messages) !== JSON.stringify(messages)) {
      await this.#session.setMessages(messages);
    }
    return this.#session;
  }

  /** False if the model was loaded again, in another tab or after a lost one, or is being loaded again. */
  async #isOpen() {
    try {
      await this.#session.refresh();
      return true;
    } catch ({ facts }) {
      return facts?.field !== "session" && facts?.backend !== "worker";
    }
  }

  /** Frees the session. A worker that has ended has freed it already. */
  #leave() {
    this.#session?.close().catch(() => {});
    [this.#session, this.#owner] = [null, null];
  }

  async #round(session, options, signal, listener) {
    listener.begin();
    // A context shift cannot cut an image.
    const isSeen = session.messages.some(({ content }) => imagesOf(content).length);
    const stream = session.stream(null, { ...options, ...(isSeen && { overflow: "stop" }), signal });
    for await (const event of stream) listener.event(event);
    const result = await stream.completion;
    return { ...result, ...result.usage, ...result.timings, n_forgotten: session.n_forgotten };
  }
}

/** Options with the tools that are switched on; the last round has to answer in words. */
function withTools(options, names, isLast) {
  if (!names.length) return options;
  return { ...options, tools: definitions(names), ...(isLast && { tool_choice: "none" }) };
}
