// The package `@anthropic-ai/sdk`.
import Anthropic from "@anthropic-ai/sdk";
import { zodOutputFormat } from "@anthropic-ai/sdk/helpers/zod";
import { Answer, CITY, errorOf, KEY, MAX_TOKENS, MESSAGES, MODEL, report, UNKNOWN, URL } from "./common.js";

const client = new Anthropic({ baseURL: URL, apiKey: KEY, maxRetries: 0 });
const base = { model: MODEL, messages: MESSAGES, temperature: 0, max_tokens: MAX_TOKENS };
const forced = {
  ...base,
  tools: [{ name: "weather", input_schema: CITY }],
  tool_choice: { type: "tool", name: "weather" },
};
const formatted = { ...base, output_config: { format: zodOutputFormat(Answer) } };

async function streamed(body) {
  const stream = client.messages.stream(body);
  let parts = 0;
  for await (const _ of stream) parts += 1;
  return [parts, await stream.finalMessage()];
}

const textOf = (reply) => reply.content.map((block) => block.text ?? "").join("");
const counts = (reply) => [reply.usage.input_tokens + (reply.usage.cache_read_input_tokens ?? 0), reply.usage.output_tokens];

function callOf(reply) {
  const block = reply.content.find(({ type }) => type === "tool_use");
  return [block.name, block.input];
}

const whole = await client.messages.create(base);
const [n_parts, joined] = await streamed(base);
const [n_schema_parts, answer] = await streamed(formatted);
report({
  plain: textOf(whole),
  streamed: textOf(joined),
  n_parts,
  usage: counts(whole),
  streamed_usage: counts(joined),
  call: callOf(await client.messages.create(forced)),
  streamed_call: callOf((await streamed(forced))[1]),
  schema: (await client.messages.parse(formatted)).parsed_output,
  streamed_schema: answer.parsed_output,
  n_schema_parts,
  error: await errorOf(() => client.messages.create({ ...base, model: UNKNOWN })),
});
