// The growing text of an answer. A block that has ended is rendered once; only the last one is rendered
// again. Until the parser of Markdown is loaded, the text is shown as it is.

import { make } from "./elements.js";
import { enhance } from "./enhance.js";
import { Lazy } from "./lazy.js";

const markdown = new Lazy((again) => import(`./markdown.js${again}`));

/** Renders Markdown into an element, as much of it as there is. */
export class AnswerView {
  #element;
  #done = 0; // characters of the blocks that have ended
  #open = null; // element of the last block
  #seen = ""; // the source of the last update
  #waiting = null; // arguments of the last update before the parser was loaded

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
    if (!markdown.module) return this.#wait(source, isComplete);
    if (source === this.#seen && !isComplete) return;
    this.#seen = source;
    const { blocksOf, bounded } = markdown.module;
    const tail = bounded(source).slice(this.#done);
    try {
      this.#show(blocksOf(tail), isComplete);
    } catch {
      // a parser that gives up, as by a stack overflow
      this.#place(make("div", { className: "plain", textContent: tail }), true);
    }
  }

  /** Shows the plain text until the parser is loaded; it stays plain if that fails. */
  #wait(...update) {
    const resume = () => {
      const last = this.#waiting;
      this.#waiting = null;
      if (!markdown.module) return;
      this.#element.replaceChildren();
      this.update(...last);
    };
    if (!this.#waiting) markdown.load().then(resume, resume);
    this.#waiting = update;
    const [textContent] = update;
    this.#element.replaceChildren(...(textContent ? [make("div", { className: "plain", textContent })] : []));
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
    const element = make("div", { className: `block ${block.type}-block` });
    element.append(markdown.module.fragmentOf(block));
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
