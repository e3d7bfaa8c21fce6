// Enhancements of rendered Markdown: typeset maths, highlighted code with a button to copy, links that open a
// new tab. The libraries are fetched with the first answer that needs them.

import { arrived } from "../files.js";
import { iconButton, make } from "./elements.js";
import { Lazy, loadStyle } from "./lazy.js";
import { text } from "./texts.js";

const HIGHLIGHT = new URL("../vendor/highlight.js", import.meta.url);
const KATEX_MODULE = new URL("../vendor/katex/katex.mjs", import.meta.url);
const KATEX_STYLE = new URL("../vendor/katex/katex.min.css", import.meta.url);
const LONGEST_CODE = 100_000; // characters; longer code stays plain
// \href and \includegraphics stay off, macros and sizes are bounded.
const KATEX = {
  trust: false,
  strict: "ignore",
  maxSize: 20,
  maxExpand: 200,
  throwOnError: true,
  errorColor: "inherit",
};
const katex = new Lazy((again) => arrivedModule(KATEX_MODULE, again));
const highlighter = new Lazy((again) => arrivedModule(HIGHLIGHT, again));

async function arrivedModule(address, again) {
  await arrived;
  return import(`${address}${again}`);
}

/**
 * Enhances the elements of a block in place.
 * @param {HTMLElement} element
 * @param {boolean} isComplete false while the block grows: code is highlighted at its end
 */
export function enhance(element, isComplete) {
  for (const link of element.querySelectorAll("a")) secure(link);
  for (const box of element.querySelectorAll("input")) box.setAttribute("aria-label", text("task"));
  for (const table of element.querySelectorAll("table")) table.tabIndex = 0; // wide tables scroll
  for (const math of element.querySelectorAll(".math")) void typeset(math);
  for (const code of element.querySelectorAll("pre > code")) {
    frame(code);
    if (isComplete) highlight(code).catch(() => {}); // it stays plain
  }
}

function secure(link) {
  if (!link.getAttribute("href")) return link.replaceWith(...link.childNodes);
  Object.assign(link, { target: "_blank", rel: "noopener noreferrer", title: link.href });
}

/** Adds a code block's head: its language and a button to copy. */
function frame(code) {
  const pre = code.parentElement;
  pre.tabIndex = 0; // keyboards scroll it
  const label = make("span", { textContent: languageOf(code) });
  const copy = iconButton("copy", "code.copy", { act: "copy-code" });
  const figure = make("div", { className: "code" }, make("div", { className: "code-head" }, label, copy));
  pre.replaceWith(figure);
  figure.append(pre);
}

function languageOf(code) {
  return /(?:^|\s)language-(\S+)/.exec(code.className)?.[1] ?? "";
}

async function highlight(code) {
  const language = languageOf(code);
  if (!language || code.textContent.length > LONGEST_CODE) return;
  const { default: library } = await highlighter.load();
  if (!library.getLanguage(language)) return;
  const { value } = library.highlight(code.textContent, { language, ignoreIllegals: true });
  code.innerHTML = value; // highlight.js escapes the code; its spans have a class alone
}

/** Typesets a formula; one that KaTeX refuses, or cannot be fetched for, stays as its source. */
async function typeset(element) {
  const source = element.textContent;
  const displayMode = element.classList.contains("display");
  try {
    const [{ default: library }] = await Promise.all([katex.load(), loadStyle(KATEX_STYLE)]);
    const html = library.renderToString(source, { ...KATEX, displayMode });
    // The policy refuses style attributes in markup and allows them set by script.
    element.innerHTML = html.replaceAll(' style="', ' data-style="');
  } catch {
    return element.classList.add("source");
  }
  for (const styled of element.querySelectorAll("[data-style]")) {
    styled.style.cssText = styled.dataset.style;
    delete styled.dataset.style;
  }
}
