// Markdown of answers as safe elements. Raw HTML stays text but for a few plain tags, images are named and
// not fetched, and marked's output passes DOMPurify. The page's policy (CSP) is the third wall.

import { Marked } from "../vendor/marked.js";
import createPurify from "../vendor/purify.js";

const PLAIN_TAG = /^<\/?(br|kbd|mark|s|sub|sup|u)\s*\/?>$/i;
const SANITISED = {
  ALLOWED_TAGS: [
    ..."a blockquote br code del div em h1 h2 h3 h4 h5 h6 hr input kbd li mark ol p pre s span".split(" "),
    ..."strong sub sup table tbody td th thead tr u ul".split(" "),
  ],
  ALLOWED_ATTR: ["href", "class", "align", "start", "type", "checked", "disabled"],
  ADD_URI_SAFE_ATTR: ["align", "start", "type", "checked", "disabled"],
  ALLOWED_URI_REGEXP: /^(?:https?|mailto):/i,
  ALLOW_DATA_ATTR: false,
  ALLOW_ARIA_ATTR: false,
  RETURN_DOM_FRAGMENT: true,
};
// Parsers recurse: more levels than a reader can tell apart would end in a stack overflow.
const DEPTH = 12;
const QUOTES = new RegExp(`^((?:[ \\t]{0,3}>){${DEPTH}})(?:[ \\t]*>)+`, "gm");
const LISTS = new RegExp(
  `^([ \\t]*(?:(?:[-*+]|\\d{1,9}[.)])[ \\t]+){${DEPTH}})(?:(?:[-*+]|\\d{1,9}[.)])[ \\t]+)+`,
  "gm",
);
const INDENT = new RegExp(`^[ \\t]{${8 * DEPTH},}`, "gm");
const BRACKETS = /([[\]*_~`!])\1{30,}/g;
const LONGEST = 50_000; // characters of a block, beyond which it is shown as text

const BLOCK_MATH = /^(?:\$\$([\s\S]+?)\$\$|\\\[([\s\S]+?)\\\])[ \t]*(?:\n|$)/;
const INLINE_MATH =
  /^(?:\$\$([^\n]+?)\$\$|\\\(([\s\S]+?)\\\)|\$((?!\s)(?:\\.|[^$\\\n])*?(?:\\.|[^$\\\s]))\$(?!\d))/;

const math = (name, level, rule, start) => ({
  name,
  level,
  start: (text) => start(text),
  tokenizer(text) {
    const found = rule.exec(text);
    if (!found) return undefined;
    const tex = found.slice(1).find((part) => part !== undefined);
    return { type: name, raw: found[0], tex, display: level === "block" || found[0].startsWith("$$") };
  },
  renderer: ({ tex, display }) =>
    `<span class="math${display ? " display" : ""}">${escaped(tex.trim())}</span>`,
});

const reader = new Marked({ gfm: true, breaks: true });
reader.use({
  extensions: [
    math("blockMath", "block", BLOCK_MATH, (text) => placeOf(text, /(?:^|\n)(?:\$\$|\\\[)/)),
    math("inlineMath", "inline", INLINE_MATH, (text) => placeOf(text, /\$|\\\(/)),
  ],
  renderer: {
    html: ({ text }) => (PLAIN_TAG.test(text.trim()) ? text : escaped(text)),
    image: ({ href, text }) =>
      `<span class="image">${escaped(text || "?")} (${escaped(hostOf(href))})</span>`,
  },
});

const purify = createPurify(globalThis.window);

/**
 * The blocks of a text: paragraphs, lists, code...
 * @param {string} text whose nesting is bounded
 * @returns {{type: string, raw: string, text?: string, lang?: string}[]} whose `raw` make up the text
 */
export function blocksOf(text) {
  return reader.lexer(text);
}

/** @returns {DocumentFragment} safe elements of a block, before maths, highlighting and buttons */
export function fragmentOf(block) {
  if (block.raw.length > LONGEST && block.type !== "code")
    return purify.sanitize(escaped(block.raw), SANITISED);
  return purify.sanitize(reader.parser([block]), SANITISED);
}

/** A text whose nesting is bounded. */
export function bounded(text) {
  return text
    .replace(/\r\n?/g, "\n")
    .replace(QUOTES, "$1")
    .replace(LISTS, "$1")
    .replace(INDENT, (spaces) => spaces.slice(0, 8 * DEPTH))
    .replace(BRACKETS, (run) => run.slice(0, 30));
}

function escaped(text) {
  return text.replace(/[&<>"']/g, (sign) => `&#${sign.charCodeAt(0)};`);
}

function placeOf(text, rule) {
  const at = text.search(rule);
  return at < 0 ? undefined : at;
}

/** The host of an image's address; the kind for an address without one. */
function hostOf(href) {
  try {
    const { host, protocol } = new URL(href);
    return host || protocol;
  } catch {
    return href.slice(0, 40);
  }
}
