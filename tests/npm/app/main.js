// An application's use of the package; the tests call `globalThis.visit`.

import { CamelidError, load, openai } from "camelid";

const MESSAGES = [{ role: "user", content: "What is 12 plus 30?" }];
const GREEDY = { temperature: 0, max_tokens: 24 };
const ENDLESS = { max_tokens: 400, ignore_eos: true };

/** All that the package does, with the model at an address. */
globalThis.visit = async (model, options) => {
  const seen = { progress: [] };
  const onProgress = ({ what }) => seen.progress.includes(what) || seen.progress.push(what);
  const llm = await load(model, { ...options, onProgress });
  seen.info = llm.info;
  seen.events = [];
  const stream = llm.stream(MESSAGES, GREEDY);
  for await (const event of stream) seen.events.push(event);
  seen.answer = await stream.completion;
  seen.openai = await throughOpenai(llm);
  seen.cancelled = [await left(llm), await aborted(llm)];
  seen.failures = await failures(llm, model);
  seen.session = await conversation(llm);
  await llm.close();
  return seen;
};

async function throughOpenai(llm) {
  const { create } = openai(llm).chat.completions;
  const scored = { logprobs: true, top_logprobs: 2 };
  const { choices: [{ message, logprobs }] } = await create({ messages: MESSAGES, ...GREEDY, ...scored });
  let text = "";
  for await (const { choices } of await create({ messages: MESSAGES, stream: true, ...GREEDY })) {
    text += choices[0].delta.content ?? "";
  }
  return { texts: [message.content, text], logprobs: logprobs.content };
}

/** Leaves a loop after three tokens. */
async function left(llm) {
  const stream = llm.stream("Once upon", ENDLESS);
  let n = 0;
  for await (const _ of stream) if ((n += 1) === 3) break;
  return stream.completion;
}

async function aborted(llm) {
  const controller = new AbortController();
  const stream = llm.stream("Once upon", { ...ENDLESS, signal: controller.signal });
  for await (const _ of stream) controller.abort();
  return stream.completion;
}

async function failures(llm, model) {
  const signal = AbortSignal.abort(new Error("no longer wanted"));
  const tries = [llm.chat(MESSAGES, { temperatur: 1 }), load(`${model}.absent`), load(model, { signal })];
  const results = await Promise.allSettled(tries);
  return results.map(({ reason }) => [reason instanceof CamelidError, reason.name, reason.message]);
}

/** A session, saved and restored: both answer alike, and at once where the load option permits it. */
async function conversation(llm) {
  const session = await llm.session({ system: "Be short.", ...GREEDY });
  await session.chat("Who are you?");
  const twin = await llm.restore(await session.save());
  const answers = await Promise.all([session, twin].map((each) => each.chat("What is 2 plus 2?")));
  return { roles: twin.messages.map(({ role }) => role), answers, cached: answers[1].usage.cached_tokens };
}
