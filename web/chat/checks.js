// Checks of conversations that come from files or from the store.

import { isContent } from "./content.js";
import { ROOT } from "./tree.js";

/** @typedef {import("./tree.js").Conversation} Conversation */

const ROLES = new Set(["user", "assistant", "tool"]);
const ID = /^[\w-]{1,100}$/;
const isText = (value) => typeof value === "string";
const isObject = (value) => typeof value === "object" && value !== null && !Array.isArray(value);

/** Fields of a message beside role and content, with their checks; null stands for an absent field. */
export const FIELDS = {
  reasoning_content: isText,
  tool_calls: (calls) => Array.isArray(calls) && calls.every(isCall),
  tool_call_id: isText,
};
const FACTS = { finish_reason: isText, rounds: Number.isFinite };

function isCall(call) {
  const { name, arguments: given } = call?.function ?? {};
  return isText(call?.id) && isText(name) && isText(given);
}

/** The known fields of an object that are there; undefined if one of them is damaged. */
function knownFields(given, checks) {
  const found = Object.keys(checks).filter((name) => (given[name] ?? null) !== null);
  if (!found.every((name) => checks[name](given[name]))) return undefined;
  return Object.fromEntries(found.map((name) => [name, given[name]]));
}

/**
 * A message with the known fields alone; undefined for a damaged one.
 * @returns {import("./tree.js").Message | undefined}
 */
export function checkedMessage(given) {
  if (!isObject(given) || !ROLES.has(given.role)) return undefined;
  const { role, content = null } = given;
  const fields = knownFields(given, FIELDS);
  return isContent(content) && fields ? { role, content, ...fields } : undefined;
}

/** A node with the known fields alone; undefined for a damaged one. */
function checkedNode(given) {
  const { id, parent, message, facts } = given ?? {};
  if (!isText(id) || !ID.test(id) || id === "__proto__" || !isText(parent)) return undefined;
  const [checked, known] = [checkedMessage(message), knownFields(facts ?? {}, FACTS)];
  if (!checked || !known) return undefined;
  return { id, parent, message: checked, ...(Object.keys(known).length && { facts: known }) };
}

/**
 * The title, system message, nodes and choices of a conversation, with the known fields alone.
 * @param {unknown} given
 * @param {(place: string) => Error} fault makes the error of a damaged place, such as `nodes[3]`
 * @returns {Pick<Conversation, "title" | "system" | "nodes" | "chosen">}
 */
export function checkedConversation(given, fault) {
  const { title, system, nodes, chosen } = given ?? {};
  if (!Array.isArray(nodes)) throw fault("nodes");
  if (!isText(title)) throw fault("title");
  if (!isText(system)) throw fault("system");
  const parents = new Map([[ROOT, null]]);
  const checked = nodes.map((node, i) => {
    const one = checkedNode(node);
    if (!one || !parents.has(one.parent) || parents.has(one.id)) throw fault(`nodes[${i}]`);
    parents.set(one.id, one.parent);
    return one;
  });
  const isChoice = ([parent, child]) =>
    child === null ? parents.has(parent) : parents.get(child) === parent;
  const choices = Object.entries(isObject(chosen) ? chosen : {}).filter(isChoice);
  return { title, system, nodes: checked, chosen: Object.fromEntries(choices) };
}

/** The damaged place of a stored conversation, or "". */
export function damageOf(conversation) {
  try {
    checkedConversation(conversation, (place) => new RangeError(place));
    return Number.isFinite(conversation.changed) ? "" : "changed";
  } catch (error) {
    if (!(error instanceof RangeError)) throw error;
    return error.message;
  }
}
