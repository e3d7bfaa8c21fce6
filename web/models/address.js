// From what a visitor types to a model's files: a hub id by the hub's listing, or an address.

import {
  abbreviated, chooseFiles, chooseTower, decoded, hubName, isTower, isUnsafe, parseHubId, partNames,
} from "./hub_id.js";
import { Interrupted, retried, statusError, unreachable } from "./requests.js";
import { ModelError } from "./texts.js";

/**
 * A file of a model. `size` in bytes and `sha256` are null where no hub names them.
 * @typedef {{name: string, url: string, size: number | null, sha256: string | null}} RemoteFile
 */

/**
 * A model elsewhere, of a hub perhaps with its vision tower, the last file. `key` is its folder in the store:
 * equal contents have equal keys.
 * @typedef {{key: string, name: string, address: string, files: RemoteFile[], note: string}} RemoteModel
 */

/** The hub's address, which the site's operator sets in hub.json. */
export async function hubEndpoint() {
  const response = await answer(new URL("hub.json", import.meta.url).href);
  if (!response.ok) throw statusError(response.url, response.status);
  return (await response.json()).endpoint.replace(/\/$/, "");
}

/**
 * Finds the files of a model.
 * @param {string} typed a hub id, or an address, perhaps relative to the page
 * @param {{withTower?: boolean, signal?: AbortSignal, base?: string}} [options]
 * @returns {Promise<RemoteModel>}
 * @throws {ModelError}
 */
export async function findModel(typed, { withTower = true, signal, base = globalThis.location.href } = {}) {
  const address = typed.trim();
  const id = parseHubId(address);
  if (id) return fromHub(id, await hubEndpoint(), { withTower, signal });
  const found = fromAddress(address, base);
  return { ...found, key: await keyOf(found.files), note: "" };
}

/** The files of an address; for one of a model's parts, the addresses of all. */
export function fromAddress(address, base) {
  const url = urlOf(address, base);
  const name = decoded(url.pathname.split("/").at(-1), address);
  if (isUnsafe(name)) throw new ModelError("no-name", { text: shortened(address) });
  if (isTower(name)) throw new ModelError("drop-tower-alone", { name });
  const files = partNames(name).map((part) => {
    const own = new URL(url);
    own.pathname = own.pathname.replace(/[^/]*$/, encodeURIComponent(part));
    return { name: part, url: own.href, size: null, sha256: null };
  });
  return { name: files[0].name, address, files };
}

function urlOf(address, base) {
  const url = URL.canParse(address, base) && /[./]/.test(address) ? new URL(address, base) : null;
  if (!url) throw new ModelError("address", { text: shortened(address) });
  if (!/^https?:$/.test(url.protocol)) throw new ModelError("scheme", { text: shortened(address) });
  if (url.username || url.password) throw new ModelError("login");
  return url;
}

function shortened(address) {
  return address.length > 200 ? `${address.slice(0, 200)}…` : address;
}

/** The chosen files of a hub's repository, at the commit that the revision has now. */
export async function fromHub(id, hub, { withTower = true, signal } = {}) {
  const repository = hubName(id, false);
  const { sha, siblings } = await list(id, hub, signal);
  const facts = ({ rfilename: name, size, lfs }) => [name, { size, sha256: digest(lfs) }];
  const listing = new Map(siblings.map(facts));
  const { names, notes } = choose([...listing.keys()], id.quant, repository, withTower);
  const absent = names.filter((name) => !listing.has(name));
  if (absent.length) {
    throw new ModelError("parts-absent", { repository, files: abbreviated(absent), n: names.length });
  }
  const files = names.map((path) => ({
    name: path.split("/").at(-1),
    url: `${hub}/${id.owner}/${id.repo}/resolve/${sha}/${path.split("/").map(encodeURIComponent).join("/")}`,
    ...listing.get(path),
  }));
  return { key: await keyOf(files), name: files[0].name, address: hubName(id), files, note: notes.join(" ") };
}

function choose(paths, quant, repository, withTower) {
  const { names, note } = chooseFiles(paths, quant, repository);
  const tower = withTower ? chooseTower(paths, names[0], repository) : { name: null, note: "" };
  return { names: [...names, tower.name].filter(Boolean), notes: [note, tower.note].filter(Boolean) };
}

async function list(id, hub, signal) {
  const path = `${id.owner}/${id.repo}/revision/${encodeURIComponent(id.revision ?? "main")}`;
  const response = await answer(`${hub}/api/models/${path}?blobs=true`, signal);
  if (!response.ok) throw refusal(id, hub, response);
  const listing = await response.json().catch(() => ({}));
  if (/^[0-9a-f]{40}$/.test(listing.sha) && Array.isArray(listing.siblings)) return listing;
  throw new ModelError("listing", { hub });
}

/** The answer to a request, whatever its status unless another attempt may mend it. Offline, there is one. */
async function answer(url, signal) {
  const attempt = async () => {
    const response = await fetch(url, { signal }).catch((error) => {
      throw signal?.aborted ? error : unreachable(url);
    });
    if (response.status === 429 || response.status >= 500) throw statusError(url, response.status);
    return response;
  };
  const given = navigator.onLine === false ? attempt() : retried(attempt, signal);
  return given.catch((error) => {
    throw error instanceof Interrupted ? error.problem : error;
  });
}

function refusal(id, hub, { url, status, headers }) {
  const repository = `${id.owner}/${id.repo}`;
  const code = headers.get("x-error-code");
  if (code === "RevisionNotFound") {
    return new ModelError("no-revision", { repository, hub, revision: id.revision });
  }
  if (code === "GatedRepo" || status === 403) return new ModelError("gated", { repository });
  if (status === 401 || status === 404) return new ModelError("repository", { repository, hub });
  return statusError(url, status);
}

/** The hash in a listing; anything but 64 hex digits is none. */
function digest(lfs) {
  return /^[0-9a-f]{64}$/.test(lfs?.sha256) ? lfs.sha256 : null;
}

async function keyOf(files) {
  const facts = JSON.stringify(files.map(({ name, url, sha256 }) => [name, sha256 ?? url]));
  const hash = await crypto.subtle.digest("SHA-256", new TextEncoder().encode(facts));
  return [...new Uint8Array(hash).subarray(0, 16)].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}
