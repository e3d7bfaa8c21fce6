// The package `openai`.
import OpenAI from "openai";
import { zodResponseFormat } from "openai/helpers/zod";
import { Answer, CITY, errorOf, KEY, MAX_TOKENS, MESSAGES, MODEL, OPENAI_URL, QUESTION, report, UNKNOWN } from "./common.js";

const client = new OpenAI({ baseURL: OPENAI_URL, apiKey: KEY, maxRetries: 0 });
const base = { model: MODEL, messages: MESSAGES, temperature: 0, max_tokens: MAX_TOKENS };
const forced = {
  ...base,
  tools: [{ type: "function", function: { name: "weather", parameters: CITY } }],
  tool_choice: { type: "function", function: { name: "weather" } },
};

async function streamed(body) {
  const stream = client.chat.completions.stream({ ...body, stream_options: { include_usage: true } });
  let parts = 0;
  for await (const _ of stream) parts += 1;
  return [parts, await stream.finalChatCompletion()];
}

function callOf(reply) {
  const { name, arguments: text } = reply.choices[0].message.tool_calls[0].function;
  return [name, JSON.parse(text)];
}

const counts = (reply) => [reply.usage.prompt_tokens, reply.usage.completion_tokens];
const whole = await client.chat.completions.create(base);
const [n_parts, joined] = await streamed(base);
const parsed = await client.chat.completions.parse({ ...base, response_format: zodResponseFormat(Answer, "answer") });
const response = await client.responses.create({ model: MODEL, input: QUESTION, temperature: 0, max_output_tokens: MAX_TOKENS });
report({
  plain: whole.choices[0].message.content,
  streamed: joined.choices[0].message.content,
  n_parts,
  usage: counts(whole),
  streamed_usage: counts(joined),
  call: callOf(await client.chat.completions.create(forced)),
  streamed_call: callOf((await streamed(forced))[1]),
  schema: parsed.choices[0].message.parsed,
  response: response.output_text,
  error: await errorOf(() => client.chat.completions.create({ ...base, model: UNKNOWN })),
});
