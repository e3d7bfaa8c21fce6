// Registers the service worker.

import { isOneFile } from "./files.js";

// After the page is ready: a first answer comes before the downloads of the installation.
const DELAY_MS = 3000;

/**
 * Keeps the site's files for visits without a network. A browser without service workers goes without; the
 * page of one file needs none.
 * @param {number} [delay] milliseconds
 */
export async function keepOffline(delay = DELAY_MS) {
  if (isOneFile || !navigator.serviceWorker) return;
  await new Promise((resolve) => setTimeout(resolve, delay));
  try {
    await navigator.serviceWorker.register(new URL("service_worker.js", import.meta.url));
  } catch (error) {
    console.info(`This page will not work offline: ${error.message}`);
  }
}
