// llama.cpp on Vulkan through node-llama-cpp: prints its device, then answers each line {prompt, tokens} of stdin with
// {prefill, decode}, in tokens a second. usage: node vulkan.mjs MODEL CONTEXT, in a folder with node-llama-cpp.
import { createInterface } from "node:readline";
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const require = createRequire(`${process.cwd()}/package.json`);
const { getLlama, LlamaLogLevel } = await import(pathToFileURL(require.resolve("node-llama-cpp")));

const [modelPath, contextSize] = process.argv.slice(2);
const llama = await getLlama({ gpu: "vulkan", build: "never", logLevel: LlamaLogLevel.error });
const model = await llama.loadModel({ modelPath, gpuLayers: "max" });
const context = await model.createContext({ contextSize: Number(contextSize), batchSize: 512 });
const sequence = context.getSequence();
const names = await llama.getGpuDeviceNames();
console.log(JSON.stringify({ devices: names, layers: model.gpuLayers, gpu: llama.gpu }));

async function ask({ prompt, tokens }) {
  await sequence.clearHistory();
  const ids = model.tokenize(prompt);
  const start = performance.now();
  let first = 0;
  let made = 0;
  const options = { temperature: 0, yieldEogToken: true };
  for await (const _ of sequence.evaluate(ids, options)) {
    first ||= performance.now();
    if ((made += 1) === tokens) break;
  }
  const end = performance.now();
  const [prefill, decode] = [(1000 * ids.length) / (first - start), (1000 * (made - 1)) / (end - first)];
  return { prompt: ids.length, made, prefill, decode };
}

for await (const line of createInterface({ input: process.stdin })) {
  console.log(JSON.stringify(await ask(JSON.parse(line))));
}
