// Files of conversations: JSON keeps every branch, Markdown the branch that is shown.

import { addNode, newConversation, newId, path, ROOT, textOf } from "./tree.js";

/** @typedef {import("./tree.js").Conversation} Conversation */

const FORMAT = "camelid-conversations";
const VERSION = 1;
const ROLES = new Set(["user", "assistant", "tool"]);
const MARK = /^<!-- camelid:(system|user|assistant|tool|title)(?: (\{.*\}))? -->$/;
// A marker inside a message must not end it: one backslash more on the way out, one less on the way in.
const ESCAPED = /^(\\*)(<!-- camelid:)/gm;
const UNESCAPED = /^\\(\\*<!-- camelid:)/gm;
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

function section({ role, content, ...rest }) {
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
  const fault = (what) => new ImportError("import.field", { where: `${where}.${what}` });
  const { title, created, changed, system, nodes, chosen } = given ?? {};
  if (!Array.isArray(nodes)) throw fault("nodes");
  if (typeof title !== "string") throw fault("title");
  if (typeof system !== "string") throw fault("system");
  const seen = new Set([ROOT]);
  const kept = nodes.map((node, i) => {
    if (!isNode(node) || !seen.has(node.parent) || seen.has(node.id)) throw fault(`nodes[${i}]`);
    seen.add(node.id);
    return {
      id: node.id,
      parent: node.parent,
      message: node.message,
      ...(node.facts && { facts: node.facts }),
    };
  });
  const at = [created, changed].map((time) => (Number.isFinite(time) ? time : Date.now()));
  const byId = new Map(kept.map((node) => [node.id, node]));
  const isKept = ([parent, child]) => byId.get(child)?.parent === parent;
  const choice = Object.fromEntries(Object.entries(chosen ?? {}).filter(isKept));
  return { id: newId(), title, created: at[0], changed: at[1], system, nodes: kept, chosen: choice };
}

function isNode(node) {
  const { id, parent, message } = node ?? {};
  const isText = [null, undefined].includes(message?.content) || typeof textOf(message.content) === "string";
  const calls = message?.tool_calls ?? [];
  const isCalls = Array.isArray(calls) && calls.every((call) => typeof call?.function?.name === "string");
  return (
    typeof id === "string" && typeof parent === "string" && ROLES.has(message?.role) && isText && isCalls
  );
}

/** @returns {Conversation} of one branch. Throws ImportError. */
function fromMarkdown(text, name) {
  const lines = text.split(/\r?\n/);
  const starts = lines.flatMap((line, i) => (MARK.test(line) ? [i] : []));
  if (!starts.length) throw new ImportError("import.markdown", { name });
  const conversation = newConversation();
  conversation.title =
    lines
      .slice(0, starts[0])
      .find((line) => line.startsWith("# "))
      ?.slice(2) ?? "";
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
  const [, role, facts] = MARK.exec(mark);
  const content = lines.join("\n").replace(/\n$/, "").replace(UNESCAPED, "$1");
  try {
    return { role, content, ...(facts && JSON.parse(facts)) };
  } catch {
    throw new ImportError("import.field", { where });
  }
}
