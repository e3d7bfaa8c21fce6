// node ask_in_firefox.mjs FIREFOX ADDRESS PROMPT: opens the page in Firefox and asks. Prints one JSON object:
// status, problem, answer, and the errors and requests outside the page.

import { launch } from "puppeteer-core";

const [executablePath, address, prompt] = process.argv.slice(2);
const LOAD_MS = 120_000;
const browser = await launch({ browser: "firefox", executablePath, headless: true });
const errors = [];
const requests = [];
try {
  const page = await browser.newPage();
  page.on("pageerror", (error) => errors.push(error.message));
  page.on("console", (message) => message.type() === "error" && errors.push(message.text()));
  page.on("request", (request) => /^(blob|data):/.test(request.url()) || requests.push(request.url()));
  await page.goto(address, { timeout: LOAD_MS });
  await page.waitForFunction(() => ["ready", "failed"].includes(window.camelid?.state), { timeout: LOAD_MS });
  const [status, problem] = await page.evaluate(
    () => ["#status-text", "#problem-text"].map((name) => document.querySelector(name).textContent),
  );
  const answer = problem ? null : await page.evaluate((text) => window.camelid.ask(text), prompt);
  console.log(JSON.stringify({ status, problem, answer, errors, requests }));
} finally {
  await browser.close();
}
