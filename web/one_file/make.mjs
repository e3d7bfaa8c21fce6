// node make.mjs SITE OUT: prepares the page of `camelid web --export` from a built site. Each script that
// starts alone (the page, workers, modules at an address) becomes one bundle, style sheets become one with
// their fonts inside, and shell.html is index.html around them. files.json lists what an export embeds.

import { createHash } from "node:crypto";
import { mkdirSync, readFileSync, realpathSync, writeFileSync } from "node:fs";
import { dirname, join, posix, relative, resolve, sep } from "node:path";
import { fileURLToPath } from "node:url";

import { build } from "esbuild";

const HERE = dirname(fileURLToPath(import.meta.url));
const [SITE, OUT] = [realpathSync(process.argv[2]), resolve(process.argv[3])]; // esbuild resolves links
const PAGE = "start.js";
const WORKER = "worker.js"; // the site's, in whose place comes the one beside this file
/** Files that the worker asks for by `fileUrl`. */
const OF_WORKER = [
  "snapshot.bin", "camelid.zip", "pyodide/pyodide-lock.json", "pyodide/python_stdlib.zip",
  "wasm-relaxed/camelid_cpu.wasm", "wasm-relaxed/camelid_cpu_threads.wasm",
  "wasm-simd/camelid_cpu.wasm", "wasm-simd/camelid_cpu_threads.wasm",
];
/** Scripts without a use in one file: it is offline anyway, and has no models dialog and no glass box. */
const UNUSED = [
  "service_worker.js", "models/download_worker.js", "models/hub.json", "models/models.css",
  "glass/glass.css", "glass/parity.json", "glass/rival.html",
];
/** Code whose other uses of its address do not matter: it is told all addresses. */
const TOLD = /^(?:pyodide\/|vendor\/|files\.js$)/;
/** Scripts of workers, by name; others are modules. */
const WORKERS = /(?:^|[/_])worker\.js$/;
const ADDRESS = /new URL\(\s*(["'])([^"']+)\1,\s*import\.meta\.url,?\s*\)/g;
const TAKE = "take()"; // the script after each part of the file
// A worker of the page gets its files in the first message; a compute worker needs none.
// Without importScripts Pyodide takes the worker for a module's, and tries no script that the policy refuses.
const BEFORE = "self.importScripts = undefined; const run = () => {";
const AFTER = `};
if (self.name === "camelid-thread") run();
else self.onmessage = ({ data }) => {
  self.onmessage = null;
  const addresses = Object.entries(data).map(([name, blob]) => [name, URL.createObjectURL(blob)]);
  const urls = Object.fromEntries(addresses);
  globalThis.camelidFiles = { urls, at: (name) => new URL(urls[name]) };
  run();
};`;

const scripts = new Set([PAGE]);
const files = new Set(OF_WORKER);

/** Puts the address of the embedded file in place of `new URL("...", import.meta.url)`. */
function placed(code, name) {
  const text = code.replace(ADDRESS, (_, quote, address) => {
    const target = posix.join(posix.dirname(name), address);
    if (!UNUSED.includes(target) && !target.endsWith("/")) {
      (/\.m?js$/.test(target) ? scripts : files).add(target);
    }
    return `globalThis.camelidFiles.at(${JSON.stringify(target)})`;
  });
  if (text.includes("import.meta.url") && !TOLD.test(name)) {
    throw new Error(`${name}: import.meta.url in one file stands in new URL("...", import.meta.url) alone`);
  }
  return text.replaceAll("import.meta.url", "self.location.href");
}

const addresses = {
  name: "addresses",
  setup: ({ onLoad }) => onLoad({ filter: /\.m?js$/ }, ({ path }) => {
    const name = relative(SITE, path).split(sep).join("/");
    return { contents: placed(readFileSync(path, "utf8"), name), loader: "js" };
  }),
};
const oldFonts = { // beside each .woff2
  name: "old fonts",
  setup({ onResolve }) {
    onResolve({ filter: /\.(?:ttf|woff)$/ }, ({ path }) => ({ path, external: true }));
  },
};

/** Bundles what an entry imports; returns the text. */
async function bundled(entry) {
  const { outputFiles: [{ text }] } = await build({
    format: "esm",
    ...entry,
    absWorkingDir: SITE, // in comments, too
    bundle: true,
    write: false,
    logLevel: "error",
    external: ["node:*", "ws"], // Pyodide's, for Node.js
    loader: { ".woff2": "dataurl", ".br": "empty", ".gz": "empty" }, // an earlier build's compressed files
    plugins: [addresses, oldFonts],
  });
  return text;
}

function entryOf(name) {
  if (!WORKERS.test(name)) return { entryPoints: [join(SITE, name)] };
  const how = { format: "iife", banner: { js: BEFORE }, footer: { js: AFTER } };
  if (name !== WORKER) return { ...how, entryPoints: [join(SITE, name)] };
  const contents = readFileSync(join(HERE, "worker.js"), "utf8");
  return { ...how, stdin: { contents, resolveDir: join(SITE, "one_file") } };
}

function write(name, text) {
  mkdirSync(dirname(join(OUT, name)), { recursive: true });
  writeFileSync(join(OUT, name), text);
}

/** index.html with style and icon inside; the parts of the file take the place of `<!--parts-->`. */
async function shell() {
  const index = readFileSync(join(SITE, "index.html"), "utf8");
  const sheets = [...index.matchAll(/<link rel="stylesheet" href="([^"]+)" \/>/g)].map(([, name]) => name);
  const contents = sheets.map((name) => `@import "./${name}";`).join("\n");
  const style = await bundled({ stdin: { contents, resolveDir: SITE, loader: "css" } });
  const boot = readFileSync(join(HERE, "boot.js"), "utf8");
  const icon = `data:image/svg+xml;base64,${readFileSync(join(SITE, "icon.svg")).toString("base64")}`;
  const policy = policyOf([boot, TAKE], style);
  return index
    .replace(/ *<link rel="(?:stylesheet|manifest|modulepreload)"[^>]*>\n/g, "")
    .replace(/ *<script type="module"[^>]*><\/script>\n/, "")
    .replaceAll('"icon.svg"', `"${icon}"`)
    .replace('<meta charset="utf-8" />', (meta) => `${meta}\n    <meta http-equiv="content-security-policy"`
      + ` content="${policy}" />`)
    .replace("</head>", (end) => `<style>${style}</style>\n  ${end}`)
    .replace("</body>", (end) => `<script>${boot}</script>\n<!--parts-->\n  ${end}`);
}

/** Nothing but this file's own scripts, and no request to any network. */
function policyOf(code, style) {
  const hash = (text) => `'sha256-${createHash("sha256").update(text).digest("base64")}'`;
  return [
    "default-src 'none'",
    `script-src ${code.map(hash).join(" ")} blob: 'wasm-unsafe-eval'`,
    "worker-src blob:",
    "connect-src blob: data:",
    `style-src ${hash(style)} blob:`,
    "img-src data: blob:",
    "font-src data:",
    "base-uri 'none'",
    "form-action 'none'",
  ].join("; ");
}

for (const name of scripts) write(name, await bundled(entryOf(name))); // a bundle may add scripts
for (const name of [...files].filter((file) => file.endsWith(".css"))) {
  write(name, await bundled({ entryPoints: [join(SITE, name)] }));
}
write("shell.html", await shell());
write("files.json", JSON.stringify({ scripts: [...scripts], files: [...files].sort() }));
