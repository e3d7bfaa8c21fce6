// Requests that are tried again: the failures that a new attempt may mend, and the waits between attempts.

import { ModelError } from "./texts.js";

const WAITS_S = [0.5, 1, 2, 4]; // before each new attempt

/** A failure that a new attempt may mend; `problem` is its error for the visitor after the last attempt. */
export class Interrupted extends Error {
  constructor(problem = null) {
    super("interrupted");
    this.problem = problem;
  }
}

/**
 * The result of `work`, by as many attempts as there are waits and one more.
 * @template T
 * @param {() => Promise<T>} work
 * @param {AbortSignal | undefined} signal ends the waits
 * @param {Promise<T>} first the first attempt, if it is under way
 * @returns {Promise<T>}
 * @throws {Interrupted} of the last attempt; any other error at once
 */
export function retried(work, signal, first = work()) {
  return WAITS_S.reduce((attempt, wait) => attempt.catch(async (error) => {
    if (!(error instanceof Interrupted)) throw error;
    await sleep(wait, signal);
    return work();
  }), first);
}

/** The error of a status other than 200 and 206; Interrupted for a server that may answer later. */
export function statusError(url, status) {
  const isLater = status === 429 || status >= 500;
  const advice = { 401: "refused", 403: "refused", 404: "missing", 410: "missing" }[status];
  const key = isLater ? "later" : advice ?? "none";
  const error = new ModelError("status", { url, status, advice: { key: `advice.${key}` } });
  return isLater ? new Interrupted(error) : error;
}

/** The error of a request without an answer. */
export function unreachable(url) {
  return new Interrupted(new ModelError("unreachable", { place: new URL(url).origin }));
}

export function sleep(seconds, signal) {
  return new Promise((resolve, reject) => {
    signal?.throwIfAborted();
    const timer = setTimeout(resolve, 1000 * seconds);
    signal?.addEventListener("abort", () => (clearTimeout(timer), reject(signal.reason)), { once: true });
  });
}
