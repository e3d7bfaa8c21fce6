// A race against wllama on this device: the same file, the same prompt, greedy, in turns.

import { make } from "../elements.js";
import { partNames } from "../models/hub_id.js";
import { button, copyButton, numberField, table } from "./elements.js";
import { median, number } from "./numbers.js";
import { report } from "./report.js";
import { openRival } from "./rival.js";
import { text } from "./texts.js";

const ROUNDS = 3;
const WORDS = " the llama and the alpaca walked over the mountain to the other side of the river";
const HEADS = ["side", "prefill", "decode"];

/** @param {HTMLElement} at @param {import("./glass.js").Looked} looked */
export function showRace(at, { llm, model, signal, attempt }) {
  const prompt = numberField("glass-race-prompt", "race.prompt", 64, 2048);
  const tokens = numberField("glass-race-tokens", "race.tokens", 32, 1024);
  const told = make("p", { role: "status", className: "quiet" });
  const found = make("div");
  const run = button("race.run", () => attempt(async () => {
    run.disabled = true;
    found.replaceChildren();
    try {
      const sizes = { n: Number(prompt.field.value), tokens: Number(tokens.field.value) };
      const tell = (key, values) => (told.textContent = text(key, values));
      found.replaceChildren(...view(await race(llm, model, sizes, signal, tell), llm.info, sizes));
    } finally {
      run.disabled = false;
      told.textContent = "";
    }
  }), "primary");
  const about = make("p", { className: "quiet" }, text("race.about"));
  at.replaceChildren(about, prompt.label, " ", tokens.label, " ", run, told, found);
}

/** Speeds of both sides, in turns, after an uncounted round. */
async function race(llm, model, { n, tokens }, signal, tell) {
  checkSizes(llm, n, tokens);
  tell("race.loading");
  const rival = await openRival(await filesOf(model, signal), { context: n + tokens + 16, signal });
  try {
    const runs = [];
    for (let round = 0; round <= ROUNDS; round += 1) {
      tell("race.round", { round, rounds: ROUNDS });
      const prompt = await promptOf(llm, n, round);
      const ours = await askCamelid(llm, prompt, tokens, signal);
      const theirs = await rival.ask(prompt, tokens);
      if (theirs.n !== ours.n || theirs.prompt !== ours.prompt) throw unequal(ours, theirs);
      if (round) runs.push([ours, theirs]);
    }
    return { runs, rival: rival.facts };
  } finally {
    rival.close();
  }
}

function checkSizes({ info: { context } }, n, tokens) {
  if (n >= 1 && tokens >= 2 && n + tokens <= context) return;
  throw new Error(text("race.sizes", { context }));
}

/** Both sides must have read and made equally many tokens. */
function unequal(ours, theirs) {
  const values = { prompt: ours.prompt, n: ours.n, prompt2: theirs.prompt, n2: theirs.n };
  return new Error(text("race.unequal", values));
}

/** A text of about n tokens, as wllama takes no ids; rounds begin differently, so no prefix is cached. */
async function promptOf(llm, n, round) {
  const words = WORDS.repeat(Math.ceil(n / 8) + 1);
  const ids = await llm.tokenize(`${String.fromCharCode(97 + round)}${words}`);
  return llm.detokenize(ids.slice(0, n));
}

async function askCamelid(llm, prompt, tokens, signal) {
  const greedy = { temperature: 0, ignore_eos: true, max_tokens: tokens };
  const stream = llm.stream(prompt, { ...greedy, cache_salt: crypto.randomUUID(), signal });
  const { timings, token_ids, usage } = await stream.completion;
  const n = usage.prompt_tokens;
  return { n: token_ids.length, prompt: n, prefill: n / timings.ttft_s, decode: timings.decode_tps };
}

/** The files of what was loaded; those of an address are fetched, of a model in parts all of them. */
async function filesOf(model, signal) {
  const places = [model].flat().flatMap((one) => (typeof one === "string" ? partsOf(one) : [one]));
  return Promise.all(places.map(async (one) => {
    if (one instanceof Blob) return one;
    if (one.getFile) return one.getFile();
    const response = await fetch(one, { signal });
    if (!response.ok) throw new Error(text("race.fetch", { address: one.href, status: response.status }));
    return new File([await response.blob()], nameOf(one)); // wllama orders parts by their names
  }));
}

function partsOf(address) {
  const url = new URL(address);
  const names = partNames(nameOf(url));
  if (names.length === 1) return [url];
  return names.map((name) => Object.assign(new URL(encodeURIComponent(name), url), { search: url.search }));
}

function nameOf({ pathname }) {
  const name = pathname.split("/").at(-1);
  try {
    return decodeURIComponent(name);
  } catch {
    return name; // a stray %
  }
}

function view({ runs, rival }, info, { tokens }) {
  const sides = [`Camelid ${info.version} (${info.backend})`, rival.name];
  const speeds = sides.map((side, i) => ({
    side,
    prefill: median(runs.map((pair) => pair[i].prefill)),
    decode: median(runs.map((pair) => pair[i].decode)),
  }));
  const rows = speeds.map(({ side, prefill, decode }) => ({
    cells: [side, number(prefill), number(decode)],
    values: [side, prefill, decode],
  }));
  const ratios = ["prefill", "decode"].map((name) => number(speeds[0][name] / speeds[1][name]));
  const told = report("Camelid and wllama", info,
    {
      prompt: `${runs[0][0].prompt} tokens`,
      answer: `${tokens} tokens, greedy`,
      figures: `medians of ${runs.length} rounds, in turns, after one uncounted`,
    },
    ["side", "prefill tok/s", "decode tok/s"],
    speeds.map(({ side, prefill, decode }) => [side, prefill.toFixed(1), decode.toFixed(1)]));
  const summary = text("race.summary", { prefill: ratios[0], decode: ratios[1], rounds: runs.length });
  return [table(text("race"), HEADS, rows), make("p", {}, summary), copyButton(told)];
}
