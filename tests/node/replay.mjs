// Replays a saved tape through the page's executor in Node: node replay.mjs TAPE.json MODEL.gguf ADAPTER
// Prints one JSON line: {adapter, steps: [[token id of each output row], ...], counters}.
import { openAsBlob, readFileSync } from "node:fs";
import { Executor } from "../../web/executor.js";
import { openDawn } from "./dawn.mjs";

const RESULT_WORDS = 4; // id, status, logit, log-sum-exp
const METHODS = { load: "load", allocate: "allocate", program: "compile" };

const [tapePath, modelPath, adapter] = process.argv.slice(2);
const tape = JSON.parse(readFileSync(tapePath, "utf8"));
const executor = new Executor(await openDawn());
const { adapter: found } = await executor.open({ ...tape.open, api: "", adapter });
const sources = { model: await openAsBlob(modelPath) };
for (const section of tape.sections) await executor[METHODS[section.kind]](section, sources);
const steps = [];
for (const { program, words, ids } of tape.steps) {
  const bytes = await executor.read(executor.run(program, Uint8Array.from(Buffer.from(words, "hex"))));
  const result = new Uint32Array(bytes.buffer, bytes.byteOffset, bytes.length >> 2);
  steps.push(ids.map((_, i) => result[i * RESULT_WORDS]));
}
const { counters } = executor;
await executor.close();
process.stdout.write(`${JSON.stringify({ adapter: found.device, steps, counters })}\n`);
process.exit(0); // Dawn's threads keep the process alive
