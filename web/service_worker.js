// Service worker: the site's own files of one build, so that the page works offline. Models are in the
// browser's file system (models/store.js), and requests to other origins pass untouched. A build is
// installed as a whole, each file checked against files.json, so that files of two builds never meet; it is
// used from the next visit, which asks for it (offline.js).

const BUILD = "unbuilt"; // web/build.py writes the build's stamp
const POLICY = ""; // the server writes a stamp of its headers, which are stored with the files
const PREFIX = "camelid-site-";
const CACHE = PREFIX + BUILD + POLICY;
const AT_ONCE = 4; // requests of the installation
const HANDING_OVER = "/handing-over"; // in the cache, as browsers end a worker at any time: when it began
const HAND_OVER_MS = 10_000; // limit, after which visits get this build until all its tabs are closed

self.addEventListener("install", (event) => event.waitUntil(install()));
self.addEventListener("activate", (event) => event.waitUntil(dropOthers()));
self.addEventListener("message", (event) => {
  if (event.data === "take over") self.skipWaiting();
  const { handOverBefore } = event.data;
  if (handOverBefore) event.waitUntil(handOver(handOverBefore, event.ports[0]));
});
self.addEventListener("fetch", (event) => {
  const url = new URL(event.request.url);
  const isOwn = url.origin === self.location.origin && event.request.method === "GET";
  if (isOwn) event.respondWith(answer(event.request, url));
});

/** Stores all files of this build. A server that has another build by now fails the installation. */
async function install() {
  try {
    const { build, files } = await (await fetched("files.json")).json();
    if (build !== BUILD) throw new Error(`the server has build ${build}, not ${BUILD}`);
    const cache = await caches.open(CACHE);
    const waiting = Object.entries(files);
    const store = async () => {
      for (let next = waiting.pop(); next; next = waiting.pop()) await keep(cache, ...next);
    };
    await Promise.all(Array.from({ length: AT_ONCE }, store));
  } catch (error) {
    await caches.delete(CACHE);
    throw error;
  }
}

async function keep(cache, path, hash) {
  const response = await fetched(path);
  if (hash && (await sha256(response.clone())) !== hash) throw new Error(`${path} is of another build`);
  await cache.put(path, response);
}

/** A file past the browser's cache, unless that is current. */
async function fetched(path) {
  const response = await fetch(path, { cache: "no-cache" });
  if (!response.ok) throw new Error(`${path}: the server answered ${response.status}`);
  return response;
}

async function sha256(response) {
  const hash = await crypto.subtle.digest("SHA-256", await response.arrayBuffer());
  return [...new Uint8Array(hash)].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}

async function dropOthers() {
  const others = (await caches.keys()).filter((name) => name.startsWith(PREFIX) && name !== CACHE);
  await Promise.all(others.map((name) => caches.delete(name)));
}

/** A file of this build; a request for any other goes to the server. */
async function answer(request, url) {
  const cache = await caches.open(CACHE);
  if (request.destination === "document" && (await isHandingOver(cache))) return reload(request); // no frame
  const path = url.pathname.replace(/\/$/, "/index.html");
  const stored = await cache.match(path);
  if (!stored) return fetch(request);
  const range = /^bytes=(\d+)-(\d*)$/.exec(request.headers.get("range") ?? "");
  return range ? part(stored, ...range.slice(1)) : stored;
}

/**
 * Begins once to hand over to a waiting build if the page that asks is the only one: then the port gets true.
 * A page that got no answer in time has loaded this build.
 */
async function handOver(before, port) {
  const cache = await caches.open(CACHE);
  const isFree = (await self.clients.matchAll()).length === 1 && !(await cache.match(HANDING_OVER));
  if (isFree) await cache.put(HANDING_OVER, new Response(Date.now()));
  const isLate = Date.now() > before;
  if (isFree && isLate) await cache.delete(HANDING_OVER);
  port.postMessage(isFree && !isLate);
}

async function isHandingOver(cache) {
  const { waiting } = self.registration;
  const begun = waiting && (await cache.match(HANDING_OVER));
  if (!begun || Date.now() - (await begun.text()) > HAND_OVER_MS) return false;
  waiting.postMessage("take over");
  return true;
}

/** Makes the browser ask again, which the new build then answers. */
function reload(request) {
  return new Response("", { headers: { refresh: `0; url=${request.url}`, "content-type": "text/html" } });
}

/** Bytes of a stored file, as a server with ranges answers. */
async function part(stored, first, last) {
  const whole = await stored.blob();
  const [start, end] = [Number(first), Math.min(last === "" ? Infinity : Number(last) + 1, whole.size)];
  const headers = new Headers(stored.headers);
  headers.delete("content-encoding");
  if (start >= end) {
    headers.set("content-range", `bytes */${whole.size}`);
    return new Response(null, { status: 416, headers });
  }
  headers.set("content-range", `bytes ${start}-${end - 1}/${whole.size}`);
  headers.set("content-length", end - start);
  return new Response(whole.slice(start, end), { status: 206, headers });
}
