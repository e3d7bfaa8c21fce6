// Modules and style sheets that are fetched when they are first needed.

/** A module by its address. A failed import is tried again by the next `load`. */
export class Lazy {
  #address;
  #loading = null;
  #nFailed = 0;
  /** @type {any} the module once it is loaded */
  module = null;

  /** @param {string | URL} address */
  constructor(address) {
    this.#address = address;
  }

  /** @returns {Promise<any>} the module */
  load() {
    this.#loading ??= this.#import().catch((error) => {
      this.#loading = null;
      this.#nFailed += 1;
      throw error;
    });
    return this.#loading;
  }

  async #import() {
    // Some browsers remember the failure of an address.
    const again = this.#nFailed ? `?again=${this.#nFailed}` : "";
    return (this.module = await import(`${this.#address}${again}`));
  }
}

/** Adds a style sheet after the page's first, once: rules of the page's later sheets win. */
export function loadStyle(address) {
  const { href } = new URL(address);
  const sheets = [...document.querySelectorAll("link[rel=stylesheet]")];
  if (sheets.some((known) => known.href === href)) return Promise.resolve();
  const link = Object.assign(document.createElement("link"), { rel: "stylesheet", href });
  return new Promise((resolve, reject) => {
    link.onload = () => resolve();
    link.onerror = () => (link.remove(), reject(new Error(`${href} could not be loaded`)));
    sheets[0].after(link);
  });
}
