// Drives Firefox by WebDriver BiDi for firefox.py: JSON [command, ...arguments] a line on stdin, {value} or
// {error} a line on stdout. Arguments of the process: Firefox's path and its preferences as JSON.

import { createRequire } from "node:module";
import { createInterface } from "node:readline";

const npm = createRequire(new URL("../tests/npm/package.json", import.meta.url));
const { default: puppeteer } = await import(npm.resolve("puppeteer-core"));
const STEP_MS = 50;
const SHOWN = "() => [...document.querySelectorAll('[role=status], [role=alert]')].map((at) => at.textContent)";
const [executablePath, preferences] = process.argv.slice(2);
const browser = await puppeteer.launch({
  browser: "firefox",
  executablePath,
  extraPrefsFirefox: JSON.parse(preferences),
});
let context = null;
let page = null;
let notes = null;

/** A page's function, as source text, called with an argument. The page's policy forbids `new Function`. */
function evaluate(source, given) {
  return page.evaluate(`(${source})(${JSON.stringify(given ?? null)})`);
}

const COMMANDS = {
  version: () => browser.version(),
  /** Opens an address in a profile of its own, or in the last one's. */
  open: async (url, isSame = false) => {
    if (!isSame) {
      await context?.close();
      context = await browser.createBrowserContext();
    }
    page = await context.newPage();
    await page.setViewport({ width: 900, height: 760 });
    notes = watch(page);
    await page.goto(url);
  },
  resize: (width, height) => page.setViewport({ width, height }),
  reload: () => page.reload(),
  /** Closes the profile's other tabs. */
  alone: async () => {
    for (const other of await context.pages()) if (other !== page) await other.close();
  },
  evaluate,
  /** Waits until a function returns a true value, and returns it; true for an element. */
  wait: async (source, given, seconds) => {
    const plain = `async (given) => ((it) => it instanceof Node || it)(await (${source})(given))`;
    for (const end = performance.now() + 1000 * seconds; performance.now() < end;) {
      const value = await evaluate(plain, given);
      if (value) return value;
      await new Promise((resolve) => setTimeout(resolve, STEP_MS));
    }
    throw new Error(`not within ${seconds} s: ${source}; shown: ${JSON.stringify(await evaluate(SHOWN))}`);
  },
  click: (selector) => page.click(selector),
  type: (selector, text) => page.type(selector, text),
  press: (key) => page.keyboard.press(key),
  choose: async (selector, paths) => (await page.$(selector)).uploadFile(...paths),
  screen: (path) => page.screenshot({ path }),
  notes: () => notes,
};

function watch(opened) {
  const found = { errors: [], urls: [] };
  opened.on("console", (message) => {
    if (["error", "warn"].includes(message.type())) found.errors.push(message.text());
  });
  opened.on("pageerror", (error) => found.errors.push(`${error}`));
  opened.on("request", (request) => found.urls.push(request.url()));
  return found;
}

async function answer([command, ...given]) {
  try {
    return { value: (await COMMANDS[command](...given)) ?? null };
  } catch (error) {
    return { error: `${command}: ${error.message}` };
  }
}

for await (const line of createInterface({ input: process.stdin })) {
  console.log(JSON.stringify(await answer(JSON.parse(line))));
}
await browser.close();
