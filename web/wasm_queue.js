// Queue of jobs that run one after the other, in the order in which they were added.

export class Queue {
  #isEager;
  #waiting = [];
  #busy = null; // promise of the running job

  /** @param {boolean} isEager true: jobs begin at once; false: when a caller awaits this or a later job */
  constructor(isEager) {
    this.#isEager = isEager;
  }

  /** @param {() => any} work @returns {{done: () => Promise<any>}} */
  add(work) {
    const job = { work, outcome: null, done: () => this.#done(job) };
    this.#waiting.push(job);
    if (this.#isEager) this.#begin();
    return job;
  }

  /** Rejects all jobs that have not begun. */
  end(error) {
    for (const job of this.#waiting.splice(0)) settle(job, Promise.reject(error));
  }

  async #done(job) {
    while (!job.outcome) await this.#begin();
    return job.outcome;
  }

  /** Waits for the running job; begins the next job if none is running. */
  #begin() {
    this.#busy ??= this.#next().finally(() => {
      this.#busy = null;
      if (this.#isEager && this.#waiting.length) this.#begin();
    });
    return this.#busy;
  }

  async #next() {
    const job = this.#waiting.shift();
    settle(job, (async () => job.work())());
    await job.outcome.catch(() => {});
  }
}

/** Sets a job's outcome; an outcome that no caller awaits is no unhandled rejection. */
function settle(job, outcome) {
  outcome.catch(() => {});
  job.outcome = outcome;
}
