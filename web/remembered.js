// The pipelines of the last visit are compiled while Python starts, and the executor that opens the same
// device finds them. Only time depends on them: a section that has changed since compiles its own.

import { openDevice } from "./device.js";
import { Build, Compiled } from "./section.js";

const BUILD = "unbuilt"; // web/build.py writes the build's stamp: another build may have other kernels
const CACHE = "camelid-pipelines";
const PLACE = "/camelid-pipelines"; // of the record in the cache; nothing is fetched from there

let last = ""; // the record, as JSON
let waiting = null; // promise of {spec, opened}: a device that no executor has opened yet; or of null
let isKept = false; // what is compiled later, as for a lost device, belongs to no start
let used = null; // {spec, section}: the device opened first, the model's, and what was compiled first

/**
 * Begins to compile the pipelines of the last visit, if it had the same model and options.
 * @param {string} name of model and options
 */
export function recall(name) {
  waiting = begun(BUILD + name).catch(() => null); // the browser stores nothing, or the record is damaged
}

async function begun(name) {
  const cache = await caches.open(CACHE);
  last = (await (await cache.match(PLACE))?.text()) ?? "";
  const record = last && JSON.parse(last);
  if (record?.name !== name) return null;
  const opened = openDevice(globalThis.navigator?.gpu, record.spec).then((found) => prepared(found, record));
  opened.catch(() => {}); // the executor opens its own
  return { spec: JSON.stringify(record.spec), opened };
}

function prepared(found, { section }) {
  const compiled = new Compiled();
  try {
    new Build(found.device, section, new Map(), compiled, { objects: 0 }).prepare();
  } catch (error) {
    found.device.destroy();
    throw error;
  }
  found.device.lost.then(() => (compiled.isLost = true));
  return { ...found, compiled };
}

/**
 * The device that was opened in advance, with its pipelines; null if there is none like this.
 * @param {object} spec as of `openDevice`
 */
export async function taken(spec) {
  const found = await waiting;
  if (found?.spec !== JSON.stringify(spec)) return null;
  waiting = null;
  const device = await found.opened.catch(() => null);
  return device?.compiled.isLost ? null : device;
}

/** Notes a device that is opened, or a section whose pipelines are compiled first. */
export function note({ spec, section }) {
  if (isKept) return;
  const empty = { name: "last visit", kind: "program", layouts: {}, modules: {}, pipelines: [] };
  if (spec) used ??= { spec, section: empty };
  if (!section || !used) return;
  Object.assign(used.section.layouts, section.layouts);
  Object.assign(used.section.modules, section.modules);
  used.section.pipelines.push(...section.pipelines);
}

/** Closes the device that was opened in advance, if no executor has opened it. */
export async function forget() {
  const unused = await waiting;
  waiting = null;
  unused?.opened.then(({ device }) => device.destroy(), () => {});
}

/**
 * Keeps what was compiled first for the next visit.
 * @param {string} name of model and options
 */
export async function keep(name) {
  const record = used && JSON.stringify({ name: BUILD + name, ...used });
  [used, isKept] = [null, true];
  if (!record || record === last) return;
  const cache = await caches.open(CACHE);
  await cache.put(PLACE, new Response(record));
}
