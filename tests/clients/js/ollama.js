// The package `ollama`, whose API has no choice of tools.
import { Ollama } from "ollama";
import { z } from "zod";
import { Answer, errorOf, MAX_TOKENS, MESSAGES, MODEL, report, UNKNOWN, URL } from "./common.js";

const client = new Ollama({ host: URL });
const base = { model: MODEL, messages: MESSAGES, options: { temperature: 0, num_predict: MAX_TOKENS } };
const counts = (reply) => [reply.prompt_eval_count, reply.eval_count];

const whole = await client.chat(base);
const parts = [];
for await (const part of await client.chat({ ...base, stream: true })) parts.push(part);
const made = await client.chat({ ...base, format: z.toJSONSchema(Answer) });
report({
  plain: whole.message.content,
  streamed: parts.map((part) => part.message.content).join(""),
  n_parts: parts.length,
  usage: counts(whole),
  streamed_usage: counts(parts.at(-1)),
  schema: JSON.parse(made.message.content),
  error: await errorOf(() => client.chat({ ...base, model: UNKNOWN })),
});
