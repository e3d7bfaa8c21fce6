// From what a visitor types to a model's files: a hub id by the hub's listing, or an address.

import { abbreviated, chooseFiles, hubName, parseHubId, partNames } from "./hub_id.js";
import { ModelError } from "./texts.js";

/**
 * A file of a model. `size` in bytes and `sha256` are null where no hub names them.
 * @typedef {{name: string, url: string, size: number | null, sha256: string | null}} RemoteFile
 */

/**
 * A model elsewhere. `key` is its folder in the store: equal contents have equal keys.
 * @typedef {{key: string, name: string, address: string, files: RemoteFile[], note: string}} RemoteModel
 */

/** The hub's address, which the site's operator sets in hub.json. */
export async function hubEndpoint() {
  const url = new URL("hub.json", import.meta.url);
  const response = await fetch(url).catch(() => {
    throw new ModelError("unreachable", { place: url.origin });
  });
  if (!response.ok) throw statusError(url.href, response.status);
  return (await response.json()).endpoint.replace(/\/$/, "");
}

/**
 * Finds the files of a model.
 * @param {string} typed a hub id, or an address, perhaps relative to the page
 * @param {{signal?: AbortSignal, base?: string}} [options]
 * @returns {Promise<RemoteModel>}
 * @throws {ModelError}
 */
export async function findModel(typed, { signal, base = globalThis.location.href } = {}) {
  const address = typed.trim();
  const id = parseHubId(address);
  if (id) return fromHub(id, await hubEndpoint(), signal);
  const found = fromAddress(address, base);
  return { ...found, key: await keyOf(found.files), note: "" };
}

/** The files of an address; for one of a model's parts, the addresses of all. */
export function fromAddress(address, base) {
  const url = URL.canParse(address, base) && /[./]/.test(address) ? new URL(address, base) : null;
  const name = url && decodeURIComponent(url.pathname.split("/").at(-1));
  if (!name || !/^https?:$/.test(url.protocol)) {
    throw new ModelError("address", { text: address.slice(0, 200) });
  }
  const files = partNames(name).map((part) => {
    const own = new URL(url);
    own.pathname = own.pathname.replace(/[^/]*$/, encodeURIComponent(part));
    return { name: part, url: own.href, size: null, sha256: null };
  });
  return { name: files[0].name, address, files };
}

/** The chosen files of a hub's repository, at the commit that the revision has now. */
export async function fromHub(id, hub, signal) {
  const repository = hubName(id, false);
  const { sha, siblings } = await list(id, hub, signal);
  const facts = ({ rfilename: name, size, lfs }) => [name, { size, sha256: digest(lfs) }];
  const listing = new Map(siblings.map(facts));
  const { names, note } = chooseFiles([...listing.keys()], id.quant, repository);
  const absent = names.filter((name) => !listing.has(name));
  if (absent.length) {
    throw new ModelError("parts-absent", { repository, files: abbreviated(absent), n: names.length });
  }
  const files = names.map((path) => ({
    name: path.split("/").at(-1),
    url: `${hub}/${id.owner}/${id.repo}/resolve/${sha}/${path.split("/").map(encodeURIComponent).join("/")}`,
    ...listing.get(path),
  }));
  return { key: await keyOf(files), name: files[0].name, address: hubName(id), files, note };
}

async function list(id, hub, signal) {
  const path = `${id.owner}/${id.repo}/revision/${encodeURIComponent(id.revision ?? "main")}`;
  const url = `${hub}/api/models/${path}?blobs=true`;
  const response = await fetch(url, { signal }).catch((error) => {
    if (signal?.aborted) throw error;
    throw new ModelError("unreachable", { place: hub });
  });
  if (!response.ok) throw refusal(id, hub, url, response);
  const listing = await response.json().catch(() => ({}));
  if (/^[0-9a-f]{40}$/.test(listing.sha) && Array.isArray(listing.siblings)) return listing;
  throw new ModelError("listing", { hub });
}

function refusal(id, hub, url, { status, headers }) {
  const repository = `${id.owner}/${id.repo}`;
  const code = headers.get("x-error-code");
  if (code === "RevisionNotFound") {
    return new ModelError("no-revision", { repository, hub, revision: id.revision });
  }
  if (code === "GatedRepo" || status === 403) return new ModelError("gated", { repository });
  if (status === 401 || status === 404) return new ModelError("repository", { repository, hub });
  return statusError(url, status);
}

/** The error of a status other than 200 and 206. */
export function statusError(url, status) {
  const isLater = status === 429 || status >= 500;
  const advice = { 401: "refused", 403: "refused", 404: "missing", 410: "missing" }[status];
  const key = isLater ? "later" : advice ?? "none";
  return new ModelError("status", { url, status, advice: { key: `advice.${key}` } });
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
