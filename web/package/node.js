// Entry of the npm package for Node.js: the client over a worker of node:worker_threads, on the processor.

import { resolve } from "node:path";
import { pathToFileURL } from "node:url";

import { load as loadWith } from "./client/camelid.js";
import { NodeWorker } from "./node_worker.js";

export { CamelidError, LLM, Session, Stream } from "./client/camelid.js";
export { openai } from "./client/openai.js";

const ADDRESS = /^(https?|file|data|blob):/;

/** As `load` of client/camelid.js; a model and its mmproj are also the paths of GGUF files. */
export async function load(model, { mmproj, ...options } = {}) {
  const located = (part) => {
    if (typeof part !== "string" || ADDRESS.test(part)) return part;
    return pathToFileURL(resolve(part));
  };
  const files = Array.isArray(model) ? model.map(located) : located(model);
  const tower = mmproj && { mmproj: located(mmproj) };
  return loadWith(files, { worker: () => new NodeWorker("camelid"), ...options, ...tower });
}
