// Runs JavaScript in QuickJS, an interpreter of its own: the code sees no page, network or storage, and its
// time, memory and stack are bounded. Out: {isLoaded: true}, then {output} or {error}. In: the code.

import {
  newQuickJSWASMModuleFromVariant,
  newVariant,
  shouldInterruptAfterDeadline,
} from "../vendor/quickjs/index.mjs";

const RUN_MS = 2000;
// QuickJS's own limit counts no sizes under Emscripten, so that the memory itself is bounded.
const MEMORY = { initial: 256, maximum: 1024 }; // pages of 64 KiB
const STACK_BYTES = 512 << 10;
const LONGEST = 8000; // characters of output
const VARIANT = {
  type: "sync",
  importFFI: async () => (await import("../vendor/quickjs/ffi.mjs")).QuickJSFFI,
  importModuleLoader: async () => (await import("../vendor/quickjs/emscripten-module.mjs")).default,
};

begin().catch(({ message }) => self.postMessage({ error: message }));

async function begin() {
  const bounded = newVariant(VARIANT, { wasmMemory: new WebAssembly.Memory(MEMORY) });
  const quickjs = await newQuickJSWASMModuleFromVariant(bounded);
  self.onmessage = ({ data: code }) => self.postMessage(answer(quickjs, code));
  self.postMessage({ isLoaded: true });
}

function answer(quickjs, code) {
  try {
    return { output: run(quickjs, code) };
  } catch (error) {
    return { error: error.message };
  }
}

/** The printed lines and the last value. Throws Error for an error of the code. */
function run(quickjs, code) {
  const runtime = quickjs.newRuntime();
  runtime.setMaxStackSize(STACK_BYTES);
  runtime.setInterruptHandler(shouldInterruptAfterDeadline(Date.now() + RUN_MS));
  const context = runtime.newContext();
  const lines = printing(context);
  const result = context.evalCode(code, "tool.js");
  const jobs = runtime.executePendingJobs();
  const fault = result.error ?? jobs.error;
  if (fault) throw new Error(described(context.dump(fault)));
  const value = shown(settled(context, result.value));
  return [...lines, ...(value === undefined ? [] : [value])].join("\n").slice(0, LONGEST) || "(no output)";
}

/** Gives the code console.log; returns the lines that it prints. */
function printing(context) {
  const lines = [];
  let size = 0;
  const log = context.newFunction("log", (...handles) => {
    const line = handles.map((handle) => shown(context.dump(handle)) ?? "undefined").join(" ");
    size += line.length;
    if (size < LONGEST) lines.push(line);
  });
  const made = context.newObject();
  for (const name of ["log", "info", "warn", "error"]) context.setProp(made, name, log);
  context.setProp(context.global, "console", made);
  return lines;
}

/** A value as JavaScript; a promise's result. */
function settled(context, handle) {
  const state = context.getPromiseState(handle);
  if (state.type === "fulfilled") return context.dump(state.value);
  if (state.type === "rejected") throw new Error(described(context.dump(state.error)));
  throw new Error("the promise was never settled");
}

function shown(value) {
  return typeof value === "object" && value !== null
    ? JSON.stringify(value)
    : value === undefined
      ? value
      : String(value);
}

function described(error) {
  if (error?.message === "interrupted") return `the code ran longer than ${RUN_MS / 1000} s and was stopped`;
  if (error === null) return "InternalError: out of memory"; // too little for the error itself
  return error?.message ? `${error.name ?? "Error"}: ${error.message}` : String(error);
}
