// The page's entry: the theme, then the model, beside which the rest of the page is fetched.

import { allSettings, given, kept } from "./chat/kept.js";
import { faultOf, loadOptions } from "./chat/settings.js";
import { WORKER, load, startWorker } from "./client/camelid.js";
import { isOneFile } from "./files.js";
import { useNewest } from "./offline.js";

document.documentElement.dataset.theme = kept("theme", "system");
await useNewest();

/** A model that is opened. */
export class Opening {
  #model;
  #mmproj;
  #stop = new AbortController();
  #told = []; // events before `listen`
  #tell = (...event) => this.#told.push(event);
  #start; // resolves `started`
  /** The start of the worker; never in a tab that shares another's. */
  started = new Promise((done) => (this.#start = done));
  /** @type {Promise<import("./client/llm.js").LLM> | null} */
  llm = null;

  /**
   * @param {import("./client/camelid.js").ModelPart | import("./client/camelid.js").ModelPart[]} model
   * @param {string} name
   * @param {import("./client/camelid.js").ModelPart} [mmproj]
   */
  constructor(model, name, mmproj) {
    [this.#model, this.name, this.#mmproj] = [model, name, mmproj];
  }

  /** Starts to load the model. */
  begin() {
    this.llm = load(this.#model, {
      ...loadOptions(allSettings()),
      mmproj: this.#mmproj,
      shared: true,
      worker: () => {
        this.#start();
        return startWorker(WORKER);
      },
      onProgress: (progress) => this.#tell("onProgress", progress),
      onNotice: (...notice) => this.#tell("onNotice", ...notice),
      signal: this.#stop.signal,
    });
    this.llm.catch(() => {}); // the page shows it
    return this;
  }

  /** Passes all progress and notices to a listener, from the first on. */
  listen(listener) {
    this.#tell = (kind, ...values) => listener[kind](...values);
    for (const event of this.#told.splice(0)) this.#tell(...event);
  }

  /** The model as `load` takes it. */
  get model() {
    return this.#model;
  }

  get isStopped() {
    return this.#stop.signal.aborted;
  }

  /** Stops loading; a loaded model stays as it is. */
  stop() {
    this.#stop.abort();
  }
}

/** The first invalid setting of the address as faultOf describes it, or null. */
export const flaw =
  Object.entries(given)
    .map(([name, value]) => faultOf(name, value))
    .find(Boolean) ?? null;

const { model, mmproj } = allSettings();
const located = (address) => address && new URL(address, location.href).href;

/** The model of the address; null after an invalid setting, and in the page of one file. */
export const first =
  flaw || isOneFile ? null : new Opening(located(model), model, located(mmproj)).begin();

// The worker's files are fetched before the page's; a tab that shares another's worker waits this long.
if (first) await Promise.race([first.started, new Promise((done) => setTimeout(done, 100))]);
import("./app.js").catch(({ message }) => {
  first?.stop();
  document.getElementById("status").dataset.state = "failed";
  const line = `The page could not be loaded: ${message}. Reload it.`; // no table of texts is loaded
  document.getElementById("status-text").textContent = line;
});
