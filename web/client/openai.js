// OpenAI's shape over a loaded model, for code written for it: `openai(llm).chat.completions.create({...})`.

import { requestError } from "./errors.js";

/** @typedef {import("./llm.js").LLM} LLM */

const REASONS = { timeout: "length", cancelled: "stop" };
/** Fields of OpenAI's request that say nothing to a model in this page. */
const IGNORED = new Set(["model", "user", "store", "metadata", "service_tier", "stream_options"]);

/**
 * @param {LLM} llm
 * @returns {{chat: {completions: {create: (body: object, options?: {signal?: AbortSignal}) => Promise<any>}},
 *   models: {list: () => Promise<object>}}}
 */
export function openai(llm) {
  const create = async (body, how = {}) => (body.stream ? chunks(llm, body, how) : whole(llm, body, how));
  const list = async () => ({ object: "list", data: [{ id: llm.info.model, object: "model" }] });
  return { chat: { completions: { create } }, models: { list } };
}

/** An answer as one object. Rejects with the signal's reason after an abort. */
async function whole(llm, body, { signal }) {
  const logprobs = [];
  const stream = begun(llm, body, signal);
  for await (const event of stream) if (body.logprobs) logprobs.push(...await scored(llm, event));
  signal?.throwIfAborted();
  const answer = await stream.completion;
  const choice = { index: 0, message: message(answer), finish_reason: reason(answer) };
  choice.logprobs = body.logprobs ? { content: logprobs } : null;
  return { ...head(llm, "chat.completion"), choices: [choice], usage: usage(answer) };
}

/** An answer as an iterable of chunks; leaving the loop cancels the request. */
function chunks(llm, body, { signal }) {
  const stream = begun(llm, body, signal);
  const controller = { abort: () => stream.cancel() };
  return { controller, [Symbol.asyncIterator]: () => iterate(llm, body, stream) };
}

async function* iterate(llm, body, stream) {
  const first = head(llm, "chat.completion.chunk");
  const chunk = (delta, rest = {}) => ({
    ...first, choices: [{ index: 0, delta, finish_reason: null, logprobs: null, ...rest }],
  });
  yield chunk({ role: "assistant", content: "" });
  for await (const event of stream) {
    const logprobs = body.logprobs ? { content: await scored(llm, event) } : null;
    for (const delta of deltas(event)) yield chunk(delta, { logprobs });
  }
  const answer = await stream.completion;
  yield chunk({}, { finish_reason: reason(answer) });
  if (body.stream_options?.include_usage) yield { ...first, choices: [], usage: usage(answer) };
}

function begun(llm, body, signal) {
  if (!Array.isArray(body.messages)) {
    throw requestError("messages", "the request has no list of messages: expected [{role, content}, ...]");
  }
  return llm.stream(body.messages, { ...options(body), signal });
}

/** Options of Camelid for the fields of OpenAI's request; a field unknown to both is refused by the model. */
function options({ messages, stream, logprobs, top_logprobs: top, max_completion_tokens: most, ...body }) {
  const isKept = ([name, value]) => value != null && !IGNORED.has(name);
  const kept = Object.fromEntries(Object.entries(body).filter(isKept));
  if (kept.n === 1) delete kept.n;
  if (most != null) kept.max_tokens = most;
  if (logprobs) kept.logprobs = top || 1;
  return kept;
}

function head(llm, object) {
  const id = `chatcmpl-${crypto.randomUUID?.() ?? Math.random().toString(36).slice(2)}`;
  return { id, object, created: Math.floor(Date.now() / 1000), model: llm.info.model };
}

function message({ text, reasoning, tool_calls: calls }) {
  const whole = { role: "assistant", content: text || (calls.length ? null : ""), refusal: null };
  if (reasoning) whole.reasoning_content = reasoning;
  if (calls.length) whole.tool_calls = calls.map((call) => called(call.id, call.name, call.arguments));
  return whole;
}

function called(id, name, text) {
  return { id, type: "function", function: { name, arguments: text } };
}

/** An event's parts as OpenAI's deltas. */
function deltas({ parts }) {
  return parts.map(delta).filter(Boolean);
}

function delta({ kind, text, index, id, name, arguments: piece }) {
  if (kind === "text") return { content: text };
  if (kind === "reasoning") return { reasoning_content: text };
  if (id) return { tool_calls: [{ index, ...called(id, name, "") }] };
  return piece === undefined ? null : { tool_calls: [{ index, function: { arguments: piece } }] };
}

function reason({ finish_reason: why }) {
  return REASONS[why] ?? why;
}

function usage({ usage: counts }) {
  const { prompt_tokens: prompt, completion_tokens: completion, cached_tokens: cached } = counts;
  return {
    prompt_tokens: prompt,
    completion_tokens: completion,
    total_tokens: prompt + completion,
    prompt_tokens_details: { cached_tokens: cached },
  };
}

/** Log-probabilities of an event's token and of the likeliest ones there; a partial character is U+FFFD. */
async function scored(llm, { token_id: id, logprob, top_logprobs: top = [] }) {
  if (id === null) return [];
  const all = [{ token_id: id, logprob }, ...top];
  const found = await llm.tokenBytes(all.map((one) => one.token_id));
  const [own, ...others] = all.map((one, i) => entry(found[i], one.logprob));
  return [{ ...own, top_logprobs: others }];
}

function entry(bytes, logprob) {
  return { token: new TextDecoder().decode(new Uint8Array(bytes)), logprob, bytes };
}
