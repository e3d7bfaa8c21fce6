// The growing text of an answer. A block that has ended is rendered once; only the last one is rendered again.

import { enhance } from "./enhance.js";
import { blocksOf, bounded, fragmentOf } from "./markdown.js";
import { make } from "./elements.js";

/** Renders Markdown into an element, as much of it as there is. */
export class AnswerView {
  #element;
  #done = 0; // characters of the blocks that have ended
  #open = null; // element of the last block
  #seen = ""; // the source of the last update

  /** @param {HTMLElement} element */
  constructor(element) {
    this.#element = element;
    element.replaceChildren();
  }

  /**
   * Shows the text so far, which begins with the text before.
   * @param {string} source
   * @param {boolean} [isComplete] true for the last call
   */
  update(source, isComplete = false) {
    if (source === this.#seen && !isComplete) return;
    this.#seen = source;
    const tail = bounded(source).slice(this.#done);
    try {
      this.#show(blocksOf(tail), isComplete);
    } catch {
      // a parser that gives up, as by a stack overflow
      this.#place(make("div", { className: "plain", textContent: tail }), true);
    }
  }

  #show(blocks, isComplete) {
    const last = blocks.findLastIndex(({ type }) => type !== "space");
    for (const [i, block] of blocks.entries()) {
      const isOpen = i >= last && !isComplete;
      if (!isOpen) this.#done += block.raw.length;
      if (block.type !== "space") this.#render(block, isOpen);
    }
  }

  #render(block, isOpen) {
    const code = isOpen && block.type === "code" && this.#open?.querySelector(":scope > .code code");
    if (code) return (code.textContent = block.text); // code that grows line by line
    const element = make("div", { className: `block ${block.type}-block` }, fragmentOf(block));
    enhance(element, !isOpen);
    this.#place(element, isOpen);
  }

  /** Puts a block in the open block's place. */
  #place(element, isOpen) {
    if (this.#open) this.#open.replaceWith(element);
    else this.#element.append(element);
    this.#open = isOpen ? element : null;
  }
}

/** Renders a whole text into an element. */
export function showMarkdown(element, source) {
  new AnswerView(element).update(source, true);
}
