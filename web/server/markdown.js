// Markdown as DOM nodes: fenced code, headings, lists, quotes, tables, rules; emphasis, code and links.
// No text becomes HTML, and only http and https links become links. Spans have a length bound, so that no
// answer costs more than linear time.

const MAX_DEPTH = 12; // of quotes and lists; deeper ones stay text
const ITEM = /^( {0,3})([-*+]|\d{1,9}[.)])( +|$)/;
const FENCE = /^ {0,3}(`{3,}|~{3,})/;
const QUOTE = /^ {0,3}> ?/;
const HEADING = /^ {0,3}(#{1,6})(?: +|$)/;
const RULE = /^ {0,3}([-*_])(?: *\1){2,} *$/;
const DELIMITER = /^:?-+:?$/;

// How each block begins, and its reader, which removes its lines. The first row that matches counts.
const BLOCKS = [
  { starts: (lines) => !lines[0].trim(), read: blank },
  { starts: (lines) => FENCE.test(lines[0]), read: fence },
  { starts: (lines) => HEADING.test(lines[0]), read: heading },
  { starts: (lines) => RULE.test(lines[0]), read: rule },
  { starts: (lines) => QUOTE.test(lines[0]), read: quote },
  { starts: (lines) => ITEM.test(lines[0]), read: list },
  { starts: isTable, read: table },
];
const BARE_LINK = /https?:\/\/[^\s<>()[\]`*]{1,2000}[^\s<>()[\]`*.,;:!?'"]/y;
const SPANS = [
  { form: /\\([!-/:-@[-`{-~])/y, make: (match) => match[1] },
  { form: /(`+)(?!`)([^]{1,1000}?)(?<!`)\1(?!`)/y, make: (match) => node("code", [match[2].trim()]) },
  { form: /(\*\*)(?=\S)([^]{0,500}?\S)\*\*(?!\*)/y, make: (match) => node("strong", spans(match[2])) },
  { form: /(?<!\w)(__)(?=\S)([^]{0,500}?\S)__(?!\w)/y, make: (match) => node("strong", spans(match[2])) },
  { form: /(\*)(?=[^\s*])([^]{0,500}?[^\s*])\*(?!\*)/y, make: (match) => node("em", spans(match[2])) },
  { form: /(?<!\w)(_)(?=[^\s_])([^]{0,500}?[^\s_])_(?!\w)/y, make: (match) => node("em", spans(match[2])) },
  { form: /(~~)(?=\S)([^]{0,500}?\S)~~/y, make: (match) => node("del", spans(match[2])) },
  { form: /\[([^\]\n]{1,500})\]\((https?:\/\/[^\s)]{1,2000})\)/y, make: (match) => link(match[2], match[1]) },
  { form: BARE_LINK, make: (match) => link(match[0], match[0]) },
];
const SPECIAL = /[\\`*_~[]|https?:\/\//g;

/** The nodes of a Markdown text. */
export function markdown(text) {
  return blocks(text.split("\n"), 0);
}

function blocks(lines, depth) {
  const nodes = [];
  while (lines.length) {
    const block = depth < MAX_DEPTH && BLOCKS.find(({ starts }) => starts(lines));
    const made = block ? block.read(lines, depth) : paragraph(lines);
    if (made) nodes.push(made);
  }
  return nodes;
}

function blank(lines) {
  lines.shift();
  return null;
}

/** Lines of code, up to the closing fence or, while an answer streams, to the end. */
function fence(lines) {
  const [, mark] = FENCE.exec(lines.shift());
  const closing = new RegExp(`^ {0,3}${mark[0]}{${mark.length},} *$`);
  const end = lines.findIndex((line) => closing.test(line));
  const code = lines.splice(0, end < 0 ? lines.length : end);
  lines.shift();
  const block = node("pre", [node("code", [code.join("\n")])]);
  block.tabIndex = 0; // keys scroll it
  return block;
}

/** A heading; the page's own are the first two levels. */
function heading(lines) {
  const line = lines.shift();
  const level = Math.min(HEADING.exec(line)[1].length + 2, 6);
  return node(`h${level}`, spans(line.replace(HEADING, "").replace(/ +#+ *$/, "")));
}

function rule(lines) {
  lines.shift();
  return node("hr", []);
}

function quote(lines, depth) {
  const inner = take(lines, (line) => QUOTE.test(line)).map((line) => line.replace(QUOTE, ""));
  return node("blockquote", blocks(inner, depth + 1));
}

function list(lines, depth) {
  const isOrdered = /\d/.test(ITEM.exec(lines[0])[2]);
  const start = Number.parseInt(ITEM.exec(lines[0])[2], 10);
  const items = [];
  while (lines.length && isItem(lines[0], isOrdered)) items.push(item(lines, depth));
  const element = node(isOrdered ? "ol" : "ul", items);
  if (isOrdered) element.start = start;
  return element;
}

function isItem(line, isOrdered) {
  const match = ITEM.exec(line);
  return match && /\d/.test(match[2]) === isOrdered && !RULE.test(line);
}

/** One item: its first line, and the lines that are indented below it. */
function item(lines, depth) {
  const [marker] = ITEM.exec(lines[0]);
  const first = lines.shift().slice(marker.length);
  const isInside = (line, next) => /^ {2,}\S/.test(line) || (!line.trim() && /^ {2,}\S/.test(next ?? ""));
  const indent = new RegExp(`^ {0,${marker.length}}`);
  const inner = [first, ...take(lines, isInside).map((line) => line.replace(indent, ""))];
  const [head, ...rest] = blocks(inner, depth + 1);
  return node("li", head?.tagName === "P" ? [...head.childNodes, ...rest] : [head ?? "", ...rest]);
}

function isTable([first, second]) {
  return first.includes("|") && second?.includes("-") && cells(second).every((cell) => DELIMITER.test(cell));
}

function table(lines) {
  const row = (tag) => node("tr", cells(lines.shift()).map((cell) => node(tag, spans(cell))));
  const head = node("thead", [row("th")]);
  lines.shift();
  const body = node("tbody", []);
  while (lines[0]?.includes("|")) body.append(row("td"));
  return node("table", [head, body]);
}

function cells(line) {
  return line.trim().replace(/^\||\|$/g, "").split("|").map((cell) => cell.trim());
}

function paragraph(lines) {
  const isOver = () => BLOCKS.some(({ starts }) => starts(lines));
  const own = [lines.shift()];
  while (lines.length && !isOver()) own.push(lines.shift());
  return node("p", spans(own.join("\n")));
}

/** The leading lines for which a condition on a line and the next holds, removed. */
function take(lines, condition) {
  const end = lines.findIndex((line, i) => !condition(line, lines[i + 1]));
  return lines.splice(0, end < 0 ? lines.length : end);
}

/** The nodes of a text within a block. */
function spans(text) {
  const nodes = [];
  let plain = 0;
  for (let at = next(text, 0); at < text.length; at = next(text, at)) {
    const found = match(text, at);
    if (!found) {
      at += 1;
      continue;
    }
    nodes.push(text.slice(plain, at), found.make(found.match));
    plain = at += found.match[0].length;
  }
  return [...nodes, text.slice(plain)];
}

function next(text, at) {
  SPECIAL.lastIndex = at;
  return SPECIAL.exec(text)?.index ?? text.length;
}

function match(text, at) {
  for (const { form, make } of SPANS) {
    form.lastIndex = at;
    const found = form.exec(text);
    if (found) return { make, match: found };
  }
  return null;
}

function link(href, text) {
  return Object.assign(node("a", [text]), { href, target: "_blank", rel: "noopener noreferrer" });
}

function node(tag, children) {
  const element = document.createElement(tag);
  element.append(...children);
  return element;
}
