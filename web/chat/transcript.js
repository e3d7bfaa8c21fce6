// The shown branch of a conversation as elements: messages with their actions, thoughts, calls and results.

import { AnswerView, showMarkdown } from "./answer_view.js";
import { imagesOf, textOf } from "./content.js";
import { iconButton, make } from "./elements.js";
import { thumbnail } from "./images.js";
import { isComposing } from "./keys.js";
import { canRead } from "./speech.js";
import { text } from "./texts.js";
import { path, place } from "./tree.js";

const PAINT_MS = 60; // painting may run on the cores that compute

/** The element of a node. */
export function turnElement(conversation, node) {
  const { role } = node.message;
  const element = emptyTurn(role, node.id);
  PARTS[role](element, node.message, conversation);
  const note = noteOf(node.facts);
  if (note) element.append(make("small", { className: "note", textContent: note }));
  if (role !== "tool" && !node.message.tool_calls) element.append(actions(conversation, node));
  return element;
}

function emptyTurn(role, id) {
  const said = make("span", { className: "hidden", textContent: text(`said.${role}`) });
  const element = make("li", { className: role }, said);
  if (id) element.dataset.id = id;
  return element;
}

const PARTS = {
  user(element, { content }) {
    const images = imagesOf(content).map((image, i) => make("li", {}, thumbnail(image, i)));
    if (images.length) element.append(make("ul", { className: "images" }, ...images));
    element.append(make("div", { className: "text", textContent: textOf(content) }));
  },
  assistant(element, { content, reasoning_content: reasoning, tool_calls: calls }) {
    if (reasoning) thoughts(element, text("thoughts")).textContent = reasoning;
    const body = make("div", { className: "text" });
    showMarkdown(body, textOf(content));
    const made = calls ?? [];
    element.append(body, ...made.map(({ function: { name, arguments: given } }) => call(name, given)));
  },
  tool(element, { content, tool_call_id: id }, conversation) {
    const calls = path(conversation).flatMap(({ message }) => message.tool_calls ?? []);
    const name = calls.findLast((made) => made.id === id)?.function.name ?? "?";
    element.append(folded("result", text("result", { name }), textOf(content), true));
  },
};

function folded(className, summary, content, open = false) {
  const body = make("pre", { textContent: content, tabIndex: 0 });
  return make(
    "details",
    { className: `folded ${className}`, open },
    make("summary", { textContent: summary }),
    body,
  );
}

function call(name, given) {
  return folded("call", text("call", { name }), indented(given), true);
}

/** JSON text with line breaks; other text as it is. */
function indented(words) {
  try {
    const value = JSON.parse(words || "{}");
    const lines = Object.entries(value).map(
      ([key, one]) => `${key}: ${typeof one === "string" ? one : JSON.stringify(one)}`,
    );
    return lines.join("\n");
  } catch {
    return words;
  }
}

/** The element of an answer's thoughts, folded before its text. */
function thoughts(element, summary) {
  const body = make("div", { className: "thoughts-text" });
  const box = make(
    "details",
    { className: "folded thoughts" },
    make("summary", { textContent: summary }),
    body,
  );
  element.insertBefore(box, element.querySelector(":scope > .text"));
  return body;
}

function noteOf(facts) {
  if (facts?.rounds) return text("note.rounds", { n: facts.rounds });
  const reasons = ["length", "cancelled", "timeout"];
  return reasons.includes(facts?.finish_reason) ? text(`note.${facts.finish_reason}`) : "";
}

/** The id of an answer of this visit, whose model alone knows it; undefined for an older one. */
export function completionOf({ facts }) {
  return facts?.completion?.visit === performance.timeOrigin ? facts.completion.id : undefined;
}

function actions(conversation, node) {
  const bar = make("div", { className: "actions" });
  const { index, n } = place(conversation, node);
  if (n > 1) bar.append(branches(index, n));
  bar.append(iconButton("copy", "copy", { act: "copy" }), iconButton("edit", "edit", { act: "edit" }));
  const isAnswer = node.message.role === "assistant";
  bar.append(iconButton("again", isAnswer ? "regenerate" : "answer", { act: "regenerate" }));
  if (completionOf(node)) {
    bar.append(iconButton("good", "good", { act: "good" }), iconButton("bad", "bad", { act: "bad" }));
  }
  if (isAnswer && canRead()) bar.append(iconButton("speak", "speak", { act: "speak" }));
  bar.append(iconButton("delete", "remove", { act: "remove" }));
  return bar;
}

/** Arrows between the versions of a message. */
function branches(index, n) {
  const before = iconButton("left", "branch.before", { act: "before" });
  const after = iconButton("right", "branch.after", { act: "after" });
  [before.disabled, after.disabled] = [index === 0, index === n - 1];
  const where = make("span", { textContent: `${index + 1}/${n}` });
  where.setAttribute("aria-label", text("branch.place", { index: index + 1, n }));
  where.setAttribute("role", "img");
  return make("span", { className: "branches" }, before, where, after);
}

/** Replaces a message's text by a field; `keep` gets the new text. */
export function editTurn(element, { message }, keep) {
  const open = element.querySelector(":scope > .edit textarea");
  if (open) return open.focus();
  const field = make("textarea", { value: textOf(message.content), rows: 3 });
  field.setAttribute("aria-label", text("edit.label"));
  const save = make("button", { type: "submit", className: "primary" });
  save.textContent = text(message.role === "user" ? "edit.send" : "edit.keep");
  const cancel = make("button", { type: "button", textContent: text("cancel") });
  const form = make("form", { className: "edit" }, field, make("div", {}, cancel, save));
  const kept = [...element.childNodes];
  const close = () => (form.remove(), element.classList.remove("editing"), element.append(...kept));
  cancel.addEventListener("click", close);
  form.addEventListener("submit", (event) => (event.preventDefault(), close(), keep(field.value)));
  form.addEventListener("keydown", (event) => {
    if (isComposing(event)) return;
    if (event.key === "Escape") (event.stopPropagation(), close());
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) form.requestSubmit();
  });
  element.classList.add("editing");
  element.replaceChildren(form);
  field.focus();
}

/** An answer while it is generated. */
export class LiveTurn {
  #view;
  #text = "";
  #reasoning = "";
  #thoughts = null;
  #calls = new Map(); // index -> {name, arguments, element}
  #painting = null;
  #onPaint;

  /** @param {(turn: LiveTurn) => void} onPaint is called after each painting */
  constructor(onPaint) {
    this.element = emptyTurn("assistant");
    this.element.setAttribute("aria-busy", "true");
    const body = make("div", { className: "text" });
    this.element.append(body);
    this.#view = new AnswerView(body);
    this.#onPaint = onPaint;
    [this.n, this.first, this.last] = [0, null, null];
  }

  /** Takes an event of the stream. */
  push({ parts }) {
    this.n += 1;
    this.last = performance.now();
    this.first ??= this.last;
    for (const part of parts) this.#take(part);
    this.#painting ??= setTimeout(() => this.#paint(), PAINT_MS);
  }

  /** Tokens per second so far; NaN before the second token. */
  get rate() {
    return (1000 * (this.n - 1)) / (this.last - this.first);
  }

  /** Ends painting; the caller replaces the element by the node's. */
  end() {
    clearTimeout(this.#painting);
  }

  #take(part) {
    if (part.kind === "text") this.#text += part.text;
    else if (part.kind === "reasoning") this.#reasoning += part.text;
    else this.#takeCall(part);
  }

  #takeCall({ index, name, arguments: piece }) {
    const made = this.#calls.get(index) ?? { name: "", written: "", element: null };
    this.#calls.set(index, made);
    made.name += name ?? "";
    made.written += piece ?? "";
  }

  #paint() {
    this.#painting = null;
    if (this.#reasoning) {
      this.#thoughts ??= thoughts(this.element, text("thinking"));
      this.#thoughts.textContent = this.#reasoning;
    }
    this.#view.update(this.#text);
    for (const made of this.#calls.values()) this.#paintCall(made);
    this.#onPaint(this);
  }

  #paintCall(made) {
    const element = call(made.name, made.written);
    if (made.element) made.element.replaceWith(element);
    else this.element.append(element);
    made.element = element;
  }
}
