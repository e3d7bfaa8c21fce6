// Runs a chain of products on n threads: `node wasm_pool.mjs FOLDER N`. Prints as JSON a hash of each run's
// result, and true if the threads ended. test_wasm_modules.py checks it.

import { createHash } from "node:crypto";
import { setTimeout as pause } from "node:timers/promises";

import { openKernels } from "./wasm_kernels.mjs";

const F32 = 0, SIZE = 64, CHAIN = 24; // matrices of SIZE x SIZE, each read by the next
const LONG = 1 << 14; // columns of 16 rows: one thread computes them while the others sleep
const RUNS = 12, PAUSE_MS = 15, LONG_ENOUGH_MS = 10000;

/** Fills with pseudo-random numbers of this spread. */
function fill(floats, spread) {
  let drawn = 1;
  for (let i = 0; i < floats.length; i++) {
    drawn = (Math.imul(drawn, 1664525) + 1013904223) >>> 0;
    floats[i] = spread * Math.sqrt(3) * (drawn / 2 ** 31 - 1);
  }
}

/** Each product's y is the next one's x, across runs: every result depends on all earlier ones. */
function chain(kernels) {
  const views = [kernels.take(4 * LONG), kernels.take(4 * LONG)];
  for (const at of views) fill(kernels.numbers(Float32Array, at, LONG), 1);
  const panels = kernels.take(4 * LONG * SIZE);
  fill(kernels.numbers(Float32Array, panels, LONG * SIZE), 1 / Math.sqrt(SIZE));
  const ends = (i) => ({ x: views[i % 2], y: views[(i + 1) % 2] });
  const linear = (i, nOut, cols) => ({ ...ends(i), panels, type: F32, nOut, cols });
  const short = Array.from({ length: CHAIN }, (_, i) => linear(i, SIZE, SIZE));
  const long = [linear(CHAIN, 16, LONG), linear(CHAIN + 1, SIZE, 16)];
  return { program: kernels.program([...short, ...long], 1), y: views[0] };
}

/** Waits for the notification of the run's end; false without a notification. */
async function isTold(word, before) {
  const found = Atomics.waitAsync(word, 0, before, LONG_ENOUGH_MS);
  return (await found.value) !== "timed-out";
}

const digest = (floats) => createHash("sha256").update(floats).digest("hex");

async function main(folder, n) {
  const kernels = openKernels(folder, n), { program, y } = chain(kernels), hashes = [];
  const done = kernels.numbers(Int32Array, kernels.c.cam_done_at(kernels.pool), 1);
  let told = true;
  for (let run = 0; run < RUNS && told; run++) {
    kernels.submit(program); // the first run precedes the threads
    if (run === 0) kernels.startThreads();
    if (n > 1 && run % 3) told = await isTold(done, run);
    else kernels.c.cam_wait(kernels.pool, 0);
    const result = kernels.numbers(Float32Array, y, SIZE).slice();
    hashes.push(result.every(Number.isFinite) ? digest(result) : "not finite");
    if (run % 2) await pause(PAUSE_MS); // the threads fall asleep
  }
  const ended = await Promise.race([kernels.close().then(() => true), pause(LONG_ENOUGH_MS, false)]);
  const [nDone] = kernels.numbers(Int32Array, done.byteOffset, 1);
  console.log(JSON.stringify({ hashes, told, ended, done: nDone }));
  process.exit();
}

await main(process.argv[2], Number(process.argv[3]));
