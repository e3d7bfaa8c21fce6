// Keeps the end of the page in view while the reader is there.

const NEAR_PX = 4; // fractions of pixels; a reader further up is left there

/** Follows the end of the growing page until the reader scrolls up, and again once they are at the end. */
export class Follower {
  #isFollowing = true;
  #y = 0;

  constructor() {
    window.addEventListener("scroll", () => this.#look(), { passive: true });
    document.addEventListener("click", ({ target }) => this.#hold(target));
    // After layout and before painting, so that each change of size is seen once.
    new ResizeObserver(() => this.#keep()).observe(document.body);
  }

  /** Goes to the end, and follows it. */
  toEnd() {
    this.#isFollowing = true;
    window.scrollTo({ top: document.body.scrollHeight });
    this.#y = window.scrollY;
  }

  #keep() {
    this.#look();
    if (this.#isFollowing) this.toEnd();
  }

  /** Only the reader moves up: growth leaves the place as it is, and a shorter page ends there. */
  #look() {
    const isAtEnd = window.innerHeight + window.scrollY >= document.body.scrollHeight - NEAR_PX;
    if (isAtEnd || window.scrollY < this.#y) this.#isFollowing = isAtEnd;
    this.#y = window.scrollY;
  }

  /** An unfolded part of the page is read where it is. */
  #hold(target) {
    if (target instanceof Element && target.closest("summary")) this.#isFollowing = false;
  }
}
