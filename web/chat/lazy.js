// Modules and style sheets that are fetched when they are first needed.

/** A module. A failed import is tried again by the next `load`. */
export class Lazy {
  #import;
  #loading = null;
  #nFailed = 0;
  /** @type {any} the module once it is loaded */
  module = null;

  /**
   * @param {(again: string) => Promise<any>} load imports the module; `again` ends its address, since some
   *   browsers remember the failure of an address
   */
  constructor(load) {
    this.#import = load;
  }

  /** @returns {Promise<any>} the module */
  load() {
    this.#loading ??= this.#attempt().catch((error) => {
      this.#loading = null;
      this.#nFailed += 1;
      throw error;
    });
    return this.#loading;
  }

  async #attempt() {
    return (this.module = await this.#import(this.#nFailed ? `?again=${this.#nFailed}` : ""));
  }
}

/** Adds a style sheet once: after the page's first, so that rules of its later sheets win, or as the last. */
export function loadStyle(address, { isLast = false } = {}) {
  const { href } = new URL(address);
  const sheets = [...document.querySelectorAll("link[rel=stylesheet]")];
  if (sheets.some((known) => known.href === href)) return Promise.resolve();
  const link = Object.assign(document.createElement("link"), { rel: "stylesheet", href });
  return new Promise((resolve, reject) => {
    link.onload = () => resolve();
    link.onerror = () => (link.remove(), reject(new Error(`${href} could not be loaded`)));
    if (isLast) document.head.append(link);
    else if (sheets.length) sheets[0].after(link);
    else document.head.querySelector("style").before(link); // the page of one file
  });
}
