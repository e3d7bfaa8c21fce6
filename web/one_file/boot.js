// Boot of the one-file page, a plain script before the file's parts. It decodes each part as the parser meets
// it and drops its text, so that the document never holds more than one. The page's script comes first and
// runs meanwhile; `camelidFiles.whole` resolves to the model's files once all parts are read.

{
  const files = {}; // name -> Blob
  const urls = {};
  const model = [];
  const making = []; // promises of files whose parts are all read
  let parts = []; // of the file that is being read
  const own = { urls, model, at: (name) => new Later(name), done: 0, total: 0, onProgress: () => {} };
  globalThis.camelidFiles = own;

  /** The address of a file that may not have arrived yet. */
  class Later extends URL {
    #name;

    constructor(name) {
      super("about:blank");
      this.#name = name;
    }

    get href() {
      return urls[this.#name];
    }

    toString() {
      return this.href;
    }
  }

  // From a file:// page browsers start no module worker, and a worker cannot fetch the page's addresses: it
  // gets the files themselves, in its first message.
  globalThis.Worker = class extends Worker {
    constructor(address, options) {
      super(address, { ...options, type: "classic" });
      if (options.name !== "camelid-thread") this.postMessage(files);
    }
  };

  /** Takes the part before the running script, which calls this. */
  globalThis.take = () => {
    const call = document.currentScript;
    const element = call.previousElementSibling;
    const { total, last, ...facts } = element.dataset;
    parts.push(decode(element.textContent));
    own.done += parts.at(-1).length;
    own.total = Number(total);
    for (const text of element.childNodes) text.data = ""; // frees it now, and not with the element
    element.remove();
    call.remove();
    own.onProgress();
    if (last === undefined) return;
    making.push(keep(facts, parts));
    parts = [];
  };

  function decode(text) {
    return Uint8Array.fromBase64?.(text) ?? Uint8Array.from(atob(text), (sign) => sign.charCodeAt(0));
  }

  async function keep({ name, type, encoding }, bytes) {
    if (type === "model") return model.push(new File(bytes, name));
    const stored = new Blob(bytes, { type });
    files[name] = encoding ? await unpacked(stored, encoding) : stored;
    urls[name] = URL.createObjectURL(files[name]);
    if (name === "start.js") import(urls[name]).catch(showFailure);
  }

  async function unpacked(blob, encoding) {
    const stream = blob.stream().pipeThrough(new DecompressionStream(encoding));
    return new Response(stream, { headers: { "content-type": blob.type } }).blob();
  }

  async function complete() {
    await Promise.all(making);
    const isCut = own.done < own.total || parts.length || !("start.js" in urls);
    if (isCut) throw new RangeError("its file is not whole");
    return model;
  }

  own.whole = new Promise((resolve, reject) => {
    addEventListener("DOMContentLoaded", () => complete().then(resolve, reject));
  });
  own.whole.catch((error) => "start.js" in urls || showFailure(error)); // else the page's script reports it

  /** Shows why the page's script did not start; no table of texts is loaded. */
  function showFailure({ message }) {
    document.getElementById("status").dataset.state = "failed";
    const line = `This page could not start: ${message}. Copy or download its file again, as a whole.`;
    document.getElementById("status-text").textContent = line;
  }
}
