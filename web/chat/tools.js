// Built-in tools that the visitor may switch on. They run in this page and reach no network.

import { calculate } from "./calculator.js";

const WORKER = new URL("javascript_worker.js", import.meta.url);
const WALL_MS = 3000; // of the loaded sandbox, which itself ends code after 2 s
const LONGEST = 4000; // characters of a result: it goes into the model's context
export const MAX_ROUNDS = 8; // answers with calls to one message

const text = (description) => ({ type: "string", description });
const tool = (description, properties, run) => ({ description, properties, run });

/** @typedef {(given: object, signal: AbortSignal | undefined) => unknown} Run */

/** @type {Record<string, {description: string, properties: object, run: Run}>} */
const TOOLS = {
  calculator: tool(
    "Computes an arithmetic expression to 15 digits, such as (2 + 3) * sqrt(16) / 7.",
    { expression: text("The expression: numbers, + - * / % ^, parentheses, sqrt, sin, log10 and the like.") },
    ({ expression }) => calculate(expression),
  ),
  current_time: tool("Tells the current date, time and time zone.", {}, () => currentTime(new Date())),
  javascript: tool(
    "Runs JavaScript in a sandbox without network or page, for 2 seconds at most. Returns what console.log " +
      "printed and the value of the last expression.",
    { code: text("The program.") },
    ({ code }, signal) => runJavascript(code, signal),
  ),
};

/** The names among some that are tools, such as kept names of an earlier page. */
export function knownTools(names) {
  return Array.isArray(names) ? names.filter((name) => Object.hasOwn(TOOLS, name)) : [];
}

/** OpenAI's tool objects of the named tools. */
export function definitions(names) {
  return names.map((name) => {
    const { description, properties } = TOOLS[name];
    const parameters = { type: "object", properties, required: Object.keys(properties) };
    return { type: "function", function: { name, description, parameters } };
  });
}

/**
 * Runs a call. A fault of the call is a result, too: the model reads it and may try again.
 * @param {{function: {name: string, arguments: string}}} call
 * @param {string[]} allowed names of the tools that are switched on
 * @param {AbortSignal} [signal] ends the call; its reason becomes the result
 * @returns {Promise<string>}
 */
export async function runCall({ function: { name, arguments: written } }, allowed, signal) {
  try {
    signal?.throwIfAborted();
    if (!allowed.includes(name)) throw new Error(`there is no tool '${name}'; known: ${allowed.join(", ")}`);
    const given = checked(name, JSON.parse(written || "{}"));
    return String(await TOOLS[name].run(given, signal)).slice(0, LONGEST);
  } catch (error) {
    return `Error: ${error.message}`.slice(0, LONGEST);
  }
}

function checked(name, given) {
  for (const property of Object.keys(TOOLS[name].properties)) {
    if (typeof given?.[property] !== "string") throw new Error(`${name} needs '${property}', a string`);
  }
  return given;
}

/** Date and time with weekday, offset and zone. */
function currentTime(now) {
  const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;
  const long = now.toLocaleString("en-GB", { dateStyle: "full", timeStyle: "long" });
  return `${long} (${zone}, ${now.toISOString()})`;
}

/** Runs code in a worker of its own, which ends in every case. */
async function runJavascript(code, signal) {
  const worker = new Worker(WORKER, { type: "module", name: "javascript" });
  const ending = new AbortController();
  const tooLong = () => new Error(`the code ran longer than ${WALL_MS / 1000} s`);
  let timer;
  try {
    return await new Promise((resolve, reject) => {
      signal?.addEventListener("abort", () => reject(signal.reason), { signal: ending.signal });
      worker.onerror = ({ message }) => reject(new Error(message || "the sandbox could not start"));
      worker.onmessage = ({ data }) => {
        if (!data.isLoaded) return data.error ? reject(new Error(data.error)) : resolve(data.output);
        timer = setTimeout(() => reject(tooLong()), WALL_MS);
        worker.postMessage(code);
      };
    });
  } finally {
    ending.abort();
    clearTimeout(timer);
    worker.terminate();
  }
}
