// Registers the service worker, and changes to its new builds.

import { isOneFile } from "./files.js";

// After the page is ready: a first answer comes before the downloads of the installation.
const DELAY_MS = 3000;
const ANSWER_MS = 1000; // limit for the service worker's answer

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

/**
 * Loads the page again in a build that waits, unless another tab has the old one. It comes before all else: a
 * page keeps the build of its first modules.
 */
export async function useNewest() {
  const workers = navigator.serviceWorker;
  if (isOneFile || !workers?.controller) return;
  const registration = await workers.getRegistration().catch(() => null);
  if (!registration?.waiting || !(await handsOver(workers.controller))) return;
  location.reload();
  await new Promise(() => {});
}

function handsOver(worker) {
  const { port1, port2 } = new MessageChannel();
  return new Promise((resolve) => {
    port1.onmessage = ({ data }) => resolve(data);
    worker.postMessage({ handOverBefore: Date.now() + ANSWER_MS }, [port2]);
    setTimeout(resolve, ANSWER_MS, false);
  });
}
