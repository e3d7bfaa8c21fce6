// Uses the package's types; `tsc --noEmit` checks it. Each @ts-expect-error is a mistake that they must find.

import { CamelidError, load, type Completion, type LLM, type Progress } from "camelid";
import { openai } from "camelid/openai";

const onProgress = ({ what, done, total }: Progress) => console.log(what, done / total);
const parts = ["/a-00001-of-00002.gguf", new Blob()];
const llm: LLM = await load(parts, { backend: "cpu", kv_type: "q8_0", onProgress });

const stream = llm.stream([{ role: "user", content: "Hello" }], { max_tokens: 8, logprobs: 2 });
for await (const { text, parts: kinds, top_logprobs: top } of stream) {
  const names = kinds.map((part) => (part.kind === "tool_call" ? part.name : part.text));
  console.log(text, names, top?.[0]?.token_id);
}
const { usage, finish_reason: reason }: Completion = await stream.completion;
const session = await llm.session({ system: "Be short.", temperature: 0 });
const blob: Blob = await session.save();
const tokens: number = await llm.count("Hello", { special: true });

const { create } = openai(llm).chat.completions;
const whole = await create({ messages: session.messages, max_tokens: 8 });
const content: string | null = whole.choices[0].message.content;
const chunks = await create({ messages: [], stream: true });
for await (const chunk of chunks) console.log(chunk.choices[0]?.delta.content);

const seeing = await load("/a.gguf", { mmproj: new Blob() });
const pixels = { width: 1, height: 1, data: new Uint8Array(3) };
await seeing.chat([{ role: "user", content: [{ type: "image", image: pixels }, { type: "text", text: "?" }] }]);
await create({ messages: [{ role: "user", content: [{ type: "image_url", image_url: { url: "data:," } }] }] });
console.log(seeing.info.takes_images);

// @ts-expect-error: an image without an image
await seeing.chat([{ role: "user", content: [{ type: "image", url: "a.png" }] }]);
// @ts-expect-error: a backend that does not exist
await load("/a.gguf", { backend: "gpu" });
// @ts-expect-error: an option that does not exist
llm.stream("Hello", { temperatur: 1 });
// @ts-expect-error: chat takes messages
await llm.chat("Hello");
// @ts-expect-error: a completion has no such field
console.log((await llm.chat([])).tokens);

console.log(usage.cached_tokens, reason, blob.size, tokens, content, CamelidError.name);
