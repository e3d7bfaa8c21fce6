// The package `openai`.
import OpenAI from "openai";
import { zodResponseFormat, zodTextFormat } from "openai/helpers/zod";
import { Answer, CITY, errorOf, KEY, MAX_TOKENS, MESSAGES, MODEL, OPENAI_URL, QUESTION, report, UNKNOWN } from "./common.js";

const client = new OpenAI({ baseURL: OPENAI_URL, apiKey: KEY, maxRetries: 0 });
const base = { model: MODEL, messages: MESSAGES, temperature: 0, max_tokens: MAX_TOKENS };
const forced = {
  ...base,
  tools: [{ type: "function", function: { name: "weather", parameters: CITY } }],
  tool_choice: { type: "function", function: { name: "weather" } },
};
const formatted = { ...base, response_format: zodResponseFormat(Answer, "answer") };
const response = { model: MODEL, input: QUESTION, temperature: 0, max_output_tokens: MAX_TOKENS };
const forcedResponse = {
  ...response,
  tools: [{ type: "function", name: "weather", parameters: CITY, strict: true }],
  tool_choice: { type: "function", name: "weather" },
};
const formattedResponse = { ...response, text: { format: zodTextFormat(Answer, "answer") } };

async function partsOf(stream) {
  let parts = 0;
  for await (const _ of stream) parts += 1;
  return parts;
}

async function streamed(body) {
  const stream = client.chat.completions.stream({ ...body, stream_options: { include_usage: true } });
  return [await partsOf(stream), await stream.finalChatCompletion()];
}

async function streamedResponse(body) {
  const stream = client.responses.stream(body);
  return [await partsOf(stream), await stream.finalResponse()];
}

function callOf(reply) {
  const { name, arguments: text } = reply.choices[0].message.tool_calls[0].function;
  return [name, JSON.parse(text)];
}

function callOfResponse(reply) {
  const { name, arguments: text } = reply.output.find(({ type }) => type === "function_call");
  return [name, JSON.parse(text)];
}

const counts = (reply) => [reply.usage.prompt_tokens, reply.usage.completion_tokens];
const whole = await client.chat.completions.create(base);
const [n_parts, joined] = await streamed(base);
const parsed = await client.chat.completions.parse(formatted);
const [n_schema_parts, joinedAnswer] = await streamed(formatted);
const [n_response_parts, joinedResponse] = await streamedResponse(response);
const { input_tokens, output_tokens } = joinedResponse.usage;
report({
  plain: whole.choices[0].message.content,
  streamed: joined.choices[0].message.content,
  n_parts,
  usage: counts(whole),
  streamed_usage: counts(joined),
  call: callOf(await client.chat.completions.create(forced)),
  streamed_call: callOf((await streamed(forced))[1]),
  schema: parsed.choices[0].message.parsed,
  streamed_schema: joinedAnswer.choices[0].message.parsed,
  n_schema_parts,
  response: (await client.responses.create(response)).output_text,
  streamed_response: joinedResponse.output_text,
  n_response_parts,
  response_usage: [input_tokens, output_tokens],
  response_call: callOfResponse(await client.responses.create(forcedResponse)),
  streamed_response_call: callOfResponse((await streamedResponse(forcedResponse))[1]),
  response_schema: (await client.responses.parse(formattedResponse)).output_parsed,
  streamed_response_schema: (await streamedResponse(formattedResponse))[1].output_parsed,
  error: await errorOf(() => client.chat.completions.create({ ...base, model: UNKNOWN })),
});
