// Unit tests of the WASM executor: `node units.mjs NAME` exits with status 0 on success.

import assert from "node:assert/strict";

import { LinearMemory, OutOfMemoryError } from "../../web/wasm_memory.js";
import { choose } from "../../web/wasm_module.js";
import { ManyThreads } from "../../web/wasm_pool.js";
import { Queue } from "../../web/wasm_queue.js";

const CHECKS = {
  /** Blocks are aligned, zeroed and disjoint, after any allocations and frees. */
  blocks: () => {
    const memory = new LinearMemory(new WebAssembly.Memory({ initial: 1 }), 100);
    const held = new Map();
    const random = draws(7);
    for (let i = 0; i < 4000; i += 1) {
      if (held.size && random(3) === 0) giveOne(memory, held, random);
      else takeOne(memory, held, random(20) ? random(5000) : random(300000), i % 255 + 1);
    }
    while (held.size) giveOne(memory, held, random);
    assert.equal(memory.take(1), 128, "all freed memory is one block again");
  },
  /** Freed memory is reused before the memory grows. */
  reuse: () => {
    const raw = new WebAssembly.Memory({ initial: 1 });
    const memory = new LinearMemory(raw, 0);
    const [first, second] = [memory.take(1e6), memory.take(1e6)];
    const size = raw.buffer.byteLength;
    memory.give(second, 1e6);
    memory.give(first, 1e6);
    assert.equal(memory.take(2e6), first);
    assert.equal(raw.buffer.byteLength, size);
  },
  /** A failed allocation allocates nothing. */
  limit: () => {
    const memory = new LinearMemory(new WebAssembly.Memory({ initial: 1, maximum: 2 }), 0);
    const first = memory.take(64);
    assert.throws(() => memory.take(1 << 20), OutOfMemoryError);
    assert.throws(() => memory.take(5e9), /^OutOfMemoryError: out of memory: \d+ bytes/);
    assert.equal(memory.take(1 << 16), first + 64);
  },
  /** Jobs run in order; a lazy queue runs a job only when it is awaited, after all jobs before it. */
  order: async () => {
    for (const isEager of [true, false]) {
      const [queue, done] = [new Queue(isEager), []];
      const jobs = [0, 1, 2].map((i) => queue.add(async () => (await turns(3 - i), done.push(i), i)));
      await turns(20);
      assert.equal(done.length, isEager ? 3 : 0);
      assert.equal(await jobs[1].done(), 1);
      assert.deepEqual(done, isEager ? [0, 1, 2] : [0, 1]);
      assert.equal(await jobs[2].done(), 2);
      assert.equal(await jobs[0].done(), 0);
    }
  },
  /** A failed job rejects its awaiters and stops no other job; ending the queue rejects all awaiters. */
  failures: async () => {
    for (const isEager of [true, false]) {
      const queue = new Queue(isEager);
      const bad = queue.add(() => {
        throw new Error("bad");
      });
      const good = queue.add(() => "good");
      await assert.rejects(bad.done(), /bad/);
      assert.equal(await good.done(), "good");
      const never = queue.add(() => new Promise(() => {}));
      const waiting = queue.add(() => "late");
      void never.done();
      queue.end(new Error("closed"));
      await assert.rejects(waiting.done(), /closed/);
    }
  },
  /** Stopping the threads rejects the awaiters of a run. */
  stop: async () => {
    globalThis.Worker = IdleWorker;
    const memory = new LinearMemory(new WebAssembly.Memory({ initial: 1, maximum: 64, shared: true }), 64);
    const exports = { cam_start: () => 8, cam_done_at: () => 0, cam_submit: () => {} };
    const threads = await ManyThreads.start({ exports, memory }, 2);
    const run = threads.run(0, 0, 0);
    await turns(3);
    threads.stop();
    await assert.rejects(run, /was closed/);
  },
  /** Selects the best supported variant and reports missing features. */
  choice: () => {
    const both = { shared: true, threads: 2 };
    assert.deepEqual(pick(choose({ variant: "wasm", threads: 2 })), { variant: "wasm", why: "", ...both });
    assert.throws(() => choose({ variant: "avx2" }), /no variant 'avx2'/);
    globalThis.crossOriginIsolated = false;
    const alone = pick(choose({ variant: "wasm", threads: 2 }));
    const why = "this page is not cross-origin isolated, so one thread";
    assert.deepEqual(alone, { variant: "wasm", threads: 1, shared: false, why });
    assert.equal(choose({ variant: "wasm", threads: 1 }).why, "", "one thread was requested");
    globalThis.crossOriginIsolated = true;
    const many = pick(choose({ variant: "wasm", threads: 100 }));
    const most = "64 of 100 threads, the maximum";
    assert.deepEqual(many, { variant: "wasm", why: most, shared: true, threads: 64 });
    WebAssembly.validate = (bytes) => !bytes.includes(0x92);
    const plain = { variant: "wasm", why: "this browser has no relaxed SIMD", ...both };
    assert.deepEqual(pick(choose({ threads: 2 })), plain);
    WebAssembly.validate = () => false;
    assert.throws(() => choose({}), /has no SIMD/);
  },
};

/** A worker that reports readiness and does no work. */
class IdleWorker {
  postMessage() {
    queueMicrotask(() => this.onmessage({ data: { fault: "" } }));
  }

  terminate() {}
}

globalThis.Worker ??= class {};

function pick({ variant, threads, shared, why }) {
  return { variant, threads, shared, why };
}

function takeOne(memory, held, bytes, mark) {
  const at = memory.take(bytes);
  assert.equal(at % 64, 0);
  assert.ok(memory.bytes.subarray(at, at + bytes).every((byte) => byte === 0));
  for (const [other, { bytes: n }] of held) assert.ok(at + bytes <= other || other + n <= at);
  memory.bytes.fill(mark, at, at + bytes);
  held.set(at, { bytes, mark });
}

function giveOne(memory, held, random) {
  const [at, { bytes, mark }] = [...held][random(held.size)];
  assert.ok(memory.bytes.subarray(at, at + bytes).every((byte) => byte === mark), "two blocks overlap");
  memory.give(at, bytes);
  held.delete(at);
}

/** Pseudo-random numbers below n, equal in each run. */
function draws(seed) {
  let state = seed;
  return (n) => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return Math.floor((state / 2 ** 32) * n);
  };
}

async function turns(n) {
  for (let i = 0; i < n; i += 1) await null;
}

await CHECKS[process.argv[2]]();
