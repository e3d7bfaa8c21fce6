// A conversation as a tree of messages: an edit or a new answer is a sibling, and nothing is lost.

import { textOf } from "./content.js";

/**
 * @typedef {object} Message as the chat template takes it
 * @property {"user" | "assistant" | "tool"} role
 * @property {string | object[] | null} content text, or parts of type "image_url" and "text"
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
 * @property {string[]} [gone] ids of removed nodes, so that no other tab brings them back
 * @property {{title?: number, system?: number}} [times] of changes by the visitor, milliseconds since 1970
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
  conversation.title ||= message.role === "user" ? titleOf(textOf(message.content)) : "";
  return node;
}

/** Sets the title or the system message; of two tabs, the later change holds. */
export function setField(conversation, name, value, now = Date.now()) {
  conversation[name] = value;
  conversation.times = { ...conversation.times, [name]: now };
}

/** The first line of a text, cut at a word. */
function titleOf(text) {
  const line = text.trim().split("\n")[0].replace(/\s+/g, " ");
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

/**
 * Shows nothing below a node: the next message becomes a new branch.
 * @returns {() => void} shows the earlier choice again, unless another one was made
 */
export function cut(conversation, parent) {
  const { [parent]: before } = conversation.chosen;
  conversation.chosen[parent] = null;
  return () => {
    if (conversation.chosen[parent] !== null) return;
    if (before === undefined) delete conversation.chosen[parent];
    else conversation.chosen[parent] = before;
  };
}

/** Removes a node and all nodes below it. */
export function removeNode(conversation, node) {
  conversation.gone = [...(conversation.gone ?? []), node.id];
  Object.assign(conversation, living(conversation));
}

/**
 * Unites two states of one conversation: all nodes of both that neither has removed.
 * @param {Conversation} mine whose branches stay shown
 * @param {Conversation} theirs
 * @returns {Conversation}
 */
export function merged(mine, theirs) {
  const known = new Map([...theirs.nodes, ...mine.nodes].map((node) => [node.id, node]));
  const gone = [...new Set([...(theirs.gone ?? []), ...(mine.gone ?? [])])];
  const both = {
    ...mine,
    title: later("title", mine, theirs) || mine.title || theirs.title,
    system: later("system", mine, theirs),
    changed: Math.max(mine.changed, theirs.changed),
    nodes: [...known.values()],
    chosen: { ...theirs.chosen, ...mine.chosen },
    ...(gone.length && { gone }),
    ...((mine.times || theirs.times) && { times: laterTimes(mine, theirs) }),
  };
  return { ...both, ...living(both) };
}

function later(name, mine, theirs) {
  return (timeOf(theirs, name) > timeOf(mine, name) ? theirs : mine)[name];
}

function laterTimes(mine, theirs) {
  const names = Object.keys({ ...theirs.times, ...mine.times });
  return Object.fromEntries(names.map((name) => [name, Math.max(timeOf(mine, name), timeOf(theirs, name))]));
}

const timeOf = ({ times }, name) => times?.[name] ?? 0;

/** The nodes that are not removed, nor below a removed one, and the choices between them. */
function living({ nodes, chosen, gone = [] }) {
  const removed = new Set(gone);
  const alive = new Set([ROOT]);
  for (const { id, parent } of nodes) if (alive.has(parent) && !removed.has(id)) alive.add(id);
  const isAlive = ([parent, child]) => alive.has(parent) && (child === null || alive.has(child));
  return {
    nodes: nodes.filter(({ id }) => alive.has(id)),
    chosen: Object.fromEntries(Object.entries(chosen).filter(isAlive)),
  };
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

/** True if the title or any message has all words of a query. */
export function matches(conversation, query) {
  const words = query.toLocaleLowerCase().split(/\s+/).filter(Boolean);
  const texts = [conversation.title, ...conversation.nodes.map(({ message }) => textOf(message.content))];
  const all = texts.join("\n").toLocaleLowerCase();
  return words.every((word) => all.includes(word));
}
