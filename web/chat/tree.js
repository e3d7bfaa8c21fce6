// A conversation as a tree of messages: an edit or a new answer is a sibling, and nothing is lost.

/**
 * @typedef {object} Message as the chat template takes it
 * @property {"user" | "assistant" | "tool"} role
 * @property {string | null} content
 * @property {string} [reasoning_content]
 * @property {{id: string, type: "function", function: {name: string, arguments: string}}[]} [tool_calls]
 * @property {string} [tool_call_id]
 *
 * @typedef {object} Node
 * @property {string} id
 * @property {string} parent ROOT for a first message
 * @property {Message} message
 * @property {object} [facts] of an answer: finish_reason, n_tokens, tps
 *
 * @typedef {object} Conversation
 * @property {string} id
 * @property {string} title empty until the first message or a rename
 * @property {number} created milliseconds since 1970
 * @property {number} changed milliseconds since 1970
 * @property {string} system text of the system message
 * @property {Node[]} nodes in the order of their making
 * @property {Record<string, string | null>} chosen parent's id -> id of the child that is shown, by default
 *   the newest; null shows none
 */

export const ROOT = "root";
const TITLE_LENGTH = 60;

/** @returns {Conversation} an empty conversation */
export function newConversation(system = "", now = Date.now()) {
  return { id: newId(), title: "", created: now, changed: now, system, nodes: [], chosen: {} };
}

export function newId() {
  const bytes = crypto.getRandomValues(new Uint8Array(8));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

/**
 * Adds a message below `parent` and shows its branch.
 * @param {Conversation} conversation
 * @param {string} parent
 * @param {Message} message
 * @returns {Node}
 */
export function addNode(conversation, parent, message, facts) {
  const node = { id: newId(), parent, message, ...(facts && { facts }) };
  conversation.nodes.push(node);
  conversation.chosen[parent] = node.id;
  conversation.title ||= message.role === "user" ? titleOf(message.content) : "";
  return node;
}

/** The first line of a text, cut at a word. */
export function titleOf(text) {
  const line = (text ?? "").trim().split("\n")[0].replace(/\s+/g, " ");
  if (line.length <= TITLE_LENGTH) return line;
  const cut = line.slice(0, TITLE_LENGTH);
  return `${cut.slice(0, Math.max(cut.lastIndexOf(" "), TITLE_LENGTH / 2))}…`;
}

/** The children of a node, oldest first. */
export function childrenOf(conversation, parent) {
  return conversation.nodes.filter((node) => node.parent === parent);
}

/** The nodes of the branch that is shown, from the first message to the last. */
export function path(conversation) {
  const known = new Map(conversation.nodes.map((node) => [node.id, node]));
  const newest = new Map(conversation.nodes.map((node) => [node.parent, node]));
  const shown = [];
  let at = ROOT;
  while (newest.has(at) && conversation.chosen[at] !== null) {
    const node = known.get(conversation.chosen[at]) ?? newest.get(at);
    shown.push(node);
    at = node.id;
  }
  return shown;
}

/** Place of a node among its siblings: {index, n}. */
export function place(conversation, node) {
  const siblings = childrenOf(conversation, node.parent);
  return { index: siblings.indexOf(node), n: siblings.length };
}

/** Shows the sibling `step` places after a node, and the branch below it. */
export function choose(conversation, node, step) {
  const siblings = childrenOf(conversation, node.parent);
  const next = siblings[siblings.indexOf(node) + step];
  if (next) conversation.chosen[node.parent] = next.id;
}

/** Removes a node and all nodes below it. */
export function removeNode(conversation, node) {
  const gone = new Set([node.id]);
  for (const { id, parent } of conversation.nodes) if (gone.has(parent)) gone.add(id);
  conversation.nodes = conversation.nodes.filter(({ id }) => !gone.has(id));
  for (const [parent, child] of Object.entries(conversation.chosen)) {
    if (gone.has(parent) || gone.has(child)) delete conversation.chosen[parent];
  }
}

/** The messages that a model reads: the system message and the given nodes. */
export function messagesOf(conversation, nodes = path(conversation)) {
  const system = conversation.system ? [{ role: "system", content: conversation.system }] : [];
  return [...system, ...nodes.map(({ message }) => message)];
}

/** A conversation of messages in a row, such as those of a session file. */
export function fromMessages(messages) {
  const isFirst = messages[0]?.role === "system";
  const conversation = newConversation(isFirst ? textOf(messages[0].content) : "");
  let parent = ROOT;
  for (const message of messages.slice(isFirst ? 1 : 0)) {
    parent = addNode(conversation, parent, message).id;
  }
  return conversation;
}

/** Text of a message's content: a string, null or a list of parts. */
export function textOf(content) {
  return Array.isArray(content) ? content.map((part) => part.text ?? "").join("") : (content ?? "");
}

/** True if the title or any message has all words of a query. */
export function matches(conversation, query) {
  const words = query.toLocaleLowerCase().split(/\s+/).filter(Boolean);
  const texts = [conversation.title, ...conversation.nodes.map(({ message }) => textOf(message.content))];
  const all = texts.join("\n").toLocaleLowerCase();
  return words.every((word) => all.includes(word));
}
