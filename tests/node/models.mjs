// Pure functions of web/models for tests/node/test_models.py: a JSON array of [function, ...arguments] on
// stdin, an array of {value} or {error} on stdout.

import { fromAddress } from "../../web/models/address.js";
import { KNOWN, needOf, verdict } from "../../web/models/device.js";
import { modelOf } from "../../web/models/dropped.js";
import { chooseFiles, parseHubId, quantTag } from "../../web/models/hub_id.js";
import { read, sums } from "../../web/models/journal.js";
import { checkRoom } from "../../web/models/store.js";
import { text, useLanguage } from "../../web/models/texts.js";

const FUNCTIONS = {
  chooseFiles, fromAddress, modelOf, needOf, parseHubId, quantTag, read, sums, verdict,
  checkRoom: (estimate, ...given) => {
    const value = { storage: { estimate: async () => estimate } };
    Object.defineProperty(globalThis, "navigator", { value, configurable: true });
    return checkRoom(...given);
  },
  known: () => KNOWN,
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
