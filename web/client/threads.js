// Start of compute workers. In a page its thread starts them for its worker: in Firefox a worker that starts
// one of its own may block for good (one start in 15 to 40), and then none of its timers fires.

const OPTIONS = { type: "module", name: "camelid-thread" };

/**
 * A compute worker.
 * @param {string} url
 * @returns {Worker | PageThread}
 */
export function startThread(url) {
  const isOfPage = typeof DedicatedWorkerGlobalScope !== "undefined"; // not in Node.js
  return isOfPage ? new PageThread(url) : new Worker(url, OPTIONS);
}

/** A compute worker that the page starts by `relay`: the part of Worker that wasm_pool.js uses. */
class PageThread {
  #port;

  constructor(url) {
    const { port1, port2 } = new MessageChannel();
    this.#port = port1;
    this.#port.onmessage = ({ data: { data, fault } }) => {
      if (fault === undefined) this.onmessage?.({ data });
      else this.onerror?.({ message: fault, preventDefault() {} });
    };
    self.postMessage({ kind: "thread", url, port: port2 }, [port2]);
  }

  postMessage(data) {
    this.#port.postMessage({ data });
  }

  terminate() {
    this.#port.postMessage({ isEnd: true });
  }
}

/**
 * Starts the compute worker of a PageThread, and relays their messages.
 * @param {{url: string, port: MessagePort}} request
 * @param {Set<Worker>} running the page's compute workers
 */
export function relay({ url, port }, running) {
  const failed = (message) => port.postMessage({ fault: message || "the browser gave no reason" });
  try {
    const thread = new Worker(url, OPTIONS);
    thread.onmessage = ({ data }) => port.postMessage({ data });
    thread.onerror = (event) => {
      event.preventDefault(); // the error reaches the pool, and needs no other handler
      failed(event.message);
    };
    running.add(thread);
    port.onmessage = ({ data: { data, isEnd } }) => {
      if (!isEnd) return thread.postMessage(data);
      thread.terminate();
      running.delete(thread);
      port.close();
    };
  } catch ({ message }) {
    failed(message);
  }
}
