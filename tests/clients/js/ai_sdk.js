// Vercel's `ai` with `@ai-sdk/openai-compatible`.
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { generateObject, generateText, jsonSchema, streamObject, streamText, tool } from "ai";
import { Answer, CITY, errorOf, KEY, MAX_TOKENS, MODEL, OPENAI_URL, QUESTION, report, UNKNOWN } from "./common.js";

const provider = createOpenAICompatible({
  name: "camelid", baseURL: OPENAI_URL, apiKey: KEY, includeUsage: true, supportsStructuredOutputs: true,
});
const base = { model: provider(MODEL), prompt: QUESTION, temperature: 0, maxOutputTokens: MAX_TOKENS, maxRetries: 0 };
const forced = {
  ...base,
  tools: { weather: tool({ inputSchema: jsonSchema(CITY) }) },
  toolChoice: { type: "tool", toolName: "weather" },
};
const counts = (usage) => [usage.inputTokens, usage.outputTokens];
const callOf = ([call]) => [call.toolName, call.input];

const whole = await generateText(base);
const stream = streamText(base);
const parts = [];
for await (const part of stream.textStream) parts.push(part);
const made = streamObject({ ...base, schema: Answer });
const schemaParts = [];
for await (const part of made.partialObjectStream) schemaParts.push(part);
report({
  plain: whole.text,
  streamed: parts.join(""),
  n_parts: parts.length,
  usage: counts(whole.usage),
  streamed_usage: counts(await stream.usage),
  call: callOf((await generateText(forced)).toolCalls),
  streamed_call: callOf(await streamText(forced).toolCalls),
  schema: (await generateObject({ ...base, schema: Answer })).object,
  streamed_schema: await made.object,
  n_schema_parts: schemaParts.length,
  error: await errorOf(() => generateText({ ...base, model: provider(UNKNOWN) })),
});
