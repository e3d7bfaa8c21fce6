// The package `ollama`, whose API has no choice of tools: the model chooses to call.
import { Ollama } from "ollama";
import { z } from "zod";
import { Answer, CITY, errorOf, MAX_TOKENS, MESSAGES, MODEL, report, UNKNOWN, URL, WEATHER_QUESTION } from "./common.js";

const client = new Ollama({ host: URL });
const base = { model: MODEL, messages: MESSAGES, options: { temperature: 0, num_predict: MAX_TOKENS } };
const counts = (reply) => [reply.prompt_eval_count, reply.eval_count];
const formatted = { ...base, format: z.toJSONSchema(Answer) };
const calling = {
  ...base,
  messages: [{ role: "user", content: WEATHER_QUESTION }],
  tools: [{ type: "function", function: { name: "weather", description: "The weather of a city.", parameters: CITY } }],
};

async function streamed(body) {
  const parts = [];
  for await (const part of await client.chat({ ...body, stream: true })) parts.push(part);
  return parts;
}

const textOf = (parts) => parts.map((part) => part.message.content).join("");

function callOf(parts) {
  const [call] = parts.flatMap((part) => part.message.tool_calls ?? []);
  return [call.function.name, call.function.arguments];
}

const whole = await client.chat(base);
const parts = await streamed(base);
const schemaParts = await streamed(formatted);
report({
  plain: whole.message.content,
  streamed: textOf(parts),
  n_parts: parts.length,
  usage: counts(whole),
  streamed_usage: counts(parts.at(-1)),
  call: callOf([await client.chat(calling)]),
  streamed_call: callOf(await streamed(calling)),
  schema: JSON.parse((await client.chat(formatted)).message.content),
  streamed_schema: JSON.parse(textOf(schemaParts)),
  n_schema_parts: schemaParts.length,
  error: await errorOf(() => client.chat({ ...base, model: UNKNOWN })),
});
