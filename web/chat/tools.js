// Built-in tools that the visitor may switch on. They run in this page and reach no network.

import { calculate } from "./calculator.js";

const WORKER = new URL("javascript_worker.js", import.meta.url);
const WALL_MS = 5000; // with the worker's start; the sandbox itself ends code after 2 s
const LONGEST = 4000; // characters of a result: it goes into the model's context
export const MAX_ROUNDS = 8; // answers with calls to one message

const text = (description) => ({ type: "string", description });
const tool = (description, properties, run) => ({ description, properties, run });

/** @type {Record<string, {description: string, properties: object, run: (given: object) => unknown}>} */
export const TOOLS = {
  calculator: tool(
    "Computes an arithmetic expression exactly, such as (2 + 3) * sqrt(16) / 7.",
    { expression: text("The expression: numbers, + - * / % ^, parentheses, sqrt, sin, log10 and the like.") },
    ({ expression }) => calculate(expression),
  ),
  current_time: tool("Tells the current date, time and time zone.", {}, () => currentTime(new Date())),
  javascript: tool(
    "Runs JavaScript in a sandbox without network or page, for 2 seconds at most. Returns what console.log " +
      "printed and the value of the last expression.",
    { code: text("The program.") },
    ({ code }) => runJavascript(code),
  ),
};

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
 * @returns {Promise<string>}
 */
export async function runCall({ function: { name, arguments: written } }, allowed) {
  try {
    if (!allowed.includes(name)) throw new Error(`there is no tool '${name}'; known: ${allowed.join(", ")}`);
    return String(await TOOLS[name].run(checked(name, JSON.parse(written || "{}")))).slice(0, LONGEST);
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
export function currentTime(now) {
  const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;
  const long = now.toLocaleString("en-GB", { dateStyle: "full", timeStyle: "long" });
  return `${long} (${zone}, ${now.toISOString()})`;
}

/** Runs code in a worker of its own, which ends in every case. */
async function runJavascript(code) {
  const worker = new Worker(WORKER, { type: "module", name: "javascript" });
  let timer;
  try {
    return await new Promise((resolve, reject) => {
      timer = setTimeout(() => reject(new Error(`the code ran longer than ${WALL_MS / 1000} s`)), WALL_MS);
      worker.onmessage = ({ data }) => (data.error ? reject(new Error(data.error)) : resolve(data.output));
      worker.onerror = ({ message }) => reject(new Error(message || "the sandbox could not start"));
      worker.postMessage(code);
    });
  } finally {
    clearTimeout(timer);
    worker.terminate();
  }
}
