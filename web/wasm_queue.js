// Jobs one after the other, in the order in which they were added.

export class Queue {
  #isEager;
  #waiting = [];
  #busy = null; // the job under way, as a promise

  /** @param {boolean} isEager begin at once; else when somebody waits for a job, or for a later one */
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

  /** Jobs that have not begun fail with this error. */
  end(error) {
    for (const job of this.#waiting.splice(0)) settle(job, Promise.reject(error));
  }

  async #done(job) {
    while (!job.outcome) await this.#begin();
    return job.outcome;
  }

  /** Waits for the job under way; begins the next if there is none. */
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

/** An outcome that nobody asks for is no unhandled rejection. */
function settle(job, outcome) {
  outcome.catch(() => {});
  job.outcome = outcome;
}
