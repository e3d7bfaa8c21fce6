// Files of conversations: JSON keeps every branch, Markdown the branch that is shown.

import { checkedConversation, checkedMessage, FIELDS } from "./checks.js";
import { contentOf, imagesOf, textOf } from "./content.js";
import { addNode, newConversation, newId, path, ROOT } from "./tree.js";

/** @typedef {import("./tree.js").Conversation} Conversation */

const FORMAT = "camelid-conversations";
const VERSION = 1;
const MARK = /^<!-- camelid:(system|user|assistant|tool)(?: (\{.*\}))? -->$/;
// A marker inside a message must not end it: one backslash more on the way out, one less on the way in.
const ESCAPED = /^(\\*)(<!-- camelid:)/gm;
const UNESCAPED = /^\\(\\*<!-- camelid:)/gm;
const DAMAGED = { damaged: true };
const HEADINGS = { system: "System", user: "User", assistant: "Assistant", tool: "Tool" };

/** A file that cannot be imported. `key` and `values` name its text in the page's languages. */
export class ImportError extends Error {
  constructor(key, values = {}) {
    super(key);
    this.name = "ImportError";
    [this.key, this.values] = [key, values];
  }
}

/** @param {Conversation[]} conversations */
export function toJson(conversations) {
  return `${JSON.stringify({ format: FORMAT, version: VERSION, conversations }, null, 1)}\n`;
}

/** The branch that is shown, as Markdown that `fromMarkdown` reads back. */
export function toMarkdown(conversation) {
  const system = conversation.system ? [section({ role: "system", content: conversation.system })] : [];
  const turns = path(conversation).map(({ message }) => section(message));
  return [`# ${conversation.title}\n`, ...system, ...turns].join("\n");
}

function section({ role, content, ...fields }) {
  const images = imagesOf(content);
  const rest = { ...fields, ...(images.length && { images }) };
  const facts = Object.keys(rest).length ? ` ${JSON.stringify(rest).replaceAll("-->", "--\\u003e")}` : "";
  const text = textOf(content).replace(ESCAPED, "\\$1$2");
  return `<!-- camelid:${role}${facts} -->\n## ${HEADINGS[role]}\n\n${text}\n`;
}

/**
 * Conversations of an exported file, with new ids: an import never replaces a conversation.
 * @param {string} text
 * @param {string} name of the file
 * @returns {Conversation[]} Throws ImportError.
 */
export function fromFile(text, name) {
  return text.trimStart().startsWith("{") ? fromJson(text, name) : [fromMarkdown(text, name)];
}

function fromJson(text, name) {
  let data;
  try {
    data = JSON.parse(text);
  } catch (error) {
    throw new ImportError("import.json", { name, why: error.message });
  }
  if (data.format !== FORMAT) throw new ImportError("import.format", { name });
  if (data.version !== VERSION) throw new ImportError("import.version", { name, version: data.version });
  if (!Array.isArray(data.conversations)) throw new ImportError("import.format", { name });
  return data.conversations.map((one, i) => checked(one, `${name}: conversations[${i}]`));
}

/** A conversation with the known fields only and a new id. */
function checked(given, where) {
  const fault = (place) => new ImportError("import.field", { where: `${where}.${place}` });
  const { title, system, nodes, chosen } = checkedConversation(given, fault);
  const times = [given.created, given.changed];
  const [created, changed] = times.map((time) => (Number.isFinite(time) ? time : Date.now()));
  return { id: newId(), title, created, changed, system, nodes, chosen };
}

/** @returns {Conversation} of one branch. Throws ImportError. */
function fromMarkdown(text, name) {
  const lines = text.split(/\r?\n/);
  const starts = lines.flatMap((line, i) => (MARK.test(line) ? [i] : []));
  if (!starts.length) throw new ImportError("import.markdown", { name });
  const heading = lines.slice(0, starts[0]).find((line) => line.startsWith("# "));
  const conversation = { ...newConversation(), title: heading?.slice(2) ?? "" };
  let parent = ROOT;
  for (const [i, start] of starts.entries()) {
    const message = read(lines.slice(start, starts[i + 1]), `${name}:${start + 1}`);
    if (message.role === "system") conversation.system = message.content;
    else parent = addNode(conversation, parent, message).id;
  }
  return conversation;
}

/** The message of a section: its marker, a heading, an empty line, the text. */
function read([mark, , , ...lines], where) {
  const [, role, written = "{}"] = MARK.exec(mark);
  const content = lines.join("\n").replace(/\n$/, "").replace(UNESCAPED, "$1");
  const { images = [], ...facts } = factsOf(written) ?? DAMAGED;
  const isSystem = role === "system" && Object.keys(facts).length === 0;
  const given = { ...facts, role, content: contentOf(content, images) };
  const message = isSystem ? { role, content } : !facts.damaged && checkedMessage(given);
  if (!message) throw new ImportError("import.field", { where });
  return message;
}

/** The facts of a marker, which are fields of a message beside role and content; null if damaged. */
function factsOf(written) {
  try {
    const facts = JSON.parse(written);
    const { images = [], ...fields } = facts;
    const isKnown = Array.isArray(images) && Object.keys(fields).every((name) => Object.hasOwn(FIELDS, name));
    return isKnown ? facts : null;
  } catch {
    return null;
  }
}
