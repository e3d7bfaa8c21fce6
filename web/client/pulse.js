// Signs of life of another tab, of which somebody waits for something.

const TICK_MS = 2000;
const MOST_MISSED = 4; // ticks without a sign; not a time, since browsers slow the timers of hidden tabs

/** Watches one tab: a page may live and not answer, frozen in the background or stopped in a debugger. */
export class Pulse {
  #missed = 0;
  #watch;
  #timer;

  /**
   * @param {{isNeeded: () => boolean, ask: () => void, onSilent: () => void}} watch `ask` requests a sign
   *   while it `isNeeded`; `onSilent` is called when none has come
   */
  constructor(watch) {
    this.#watch = watch;
    this.#timer = setInterval(() => this.#tick(), TICK_MS);
  }

  /** Notes a sign of life. */
  beat() {
    this.#missed = 0;
  }

  /** Takes the tab for lost. */
  lose() {
    this.end();
    this.#watch.onSilent();
  }

  end() {
    clearInterval(this.#timer);
  }

  #tick() {
    if (!this.#watch.isNeeded()) return this.beat();
    if (this.#missed === MOST_MISSED) return this.lose();
    this.#missed += 1;
    this.#watch.ask();
  }
}
