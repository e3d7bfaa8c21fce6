// Images in Node.js: `node images.mjs MODEL MMPROJ PIXELS WIDTH HEIGHT`; prints what it has seen.

import { readFile } from "node:fs/promises";

import { load } from "camelid";

const [model, mmproj, pixels, width, height] = process.argv.slice(2);
const data = await readFile(pixels);
const llm = await load(model, { mmproj, backend: "cpu" });
const ask = (image) => {
  const content = [{ type: "image", image }, { type: "text", text: "What is this?" }];
  return llm.chat([{ role: "user", content }], { temperature: 0, max_tokens: 8 });
};
const { token_ids: tokens } = await ask({ width: Number(width), height: Number(height), data });
const file = await ask(new Blob([data])).catch(({ name, message }) => [name, message]);
await llm.close();
console.log(JSON.stringify({ takes_images: llm.info.takes_images, pixels: tokens, file }));
