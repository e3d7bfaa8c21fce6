// Pure functions of web/models for tests/node/test_models.py: a JSON array of [function, ...arguments] on
// stdin, an array of {value} or {error} on stdout.

import { fromAddress } from "../../web/models/address.js";
import { KNOWN, needOf, verdict } from "../../web/models/device.js";
import { download } from "../../web/models/downloads.js";
import { modelOf } from "../../web/models/dropped.js";
import { chooseFiles, chooseTower, parseHubId, quantTag } from "../../web/models/hub_id.js";
import { read, sums } from "../../web/models/journal.js";
import { checkRoom } from "../../web/models/store.js";
import { text, useLanguage } from "../../web/models/texts.js";

const FUNCTIONS = {
  chooseFiles, chooseTower, fromAddress, modelOf, needOf, parseHubId, quantTag, read, sums, verdict,
  checkRoom: (estimate, ...given) => {
    const value = { storage: { estimate: async () => estimate } };
    Object.defineProperty(globalThis, "navigator", { value, configurable: true });
    return checkRoom(...given);
  },
  known: () => KNOWN,
  /** The end of a download that is stopped while the store is asked. */
  stopped: async () => {
    globalThis.Worker = class {
      postMessage() {}
      terminate() {}
    };
    const none = { getDirectoryHandle: () => Promise.reject(new Error()) };
    const value = { storage: { getDirectory: async () => ({ getDirectoryHandle: async () => none }) } };
    Object.defineProperty(globalThis, "navigator", { value, configurable: true });
    const stop = new AbortController();
    const ended = download({ key: "a" }, { signal: stop.signal, onProgress: () => {} });
    stop.abort(new Error("stopped"));
    const late = new Promise((resolve) => setTimeout(() => resolve("it goes on"), 500));
    return Promise.race([ended, late]);
  },
  table: async (name) => Object.values(await import(`../../web/models/texts/${name}.js`))[0],
  translated: async (language, key, values) => (await useLanguage(language), text(key, values)),
};

async function answer([name, ...given]) {
  try {
    return { value: await FUNCTIONS[name](...given) };
  } catch (error) {
    return { error: error.message };
  }
}

const asked = JSON.parse((await process.stdin.toArray()).join(""));
const answers = [];
for (const each of asked) answers.push(await answer(each));
console.log(JSON.stringify(answers));
process.exit(0); // a channel of downloads.js would keep the process
