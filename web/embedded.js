// The model inside the page of one file, which arrives while the browser reads the file (one_file/boot.js).

import { formatted, text } from "./chat/texts.js";

const own = globalThis.camelidFiles;

/**
 * The files of the model, once the browser has read the whole page.
 * @param {(line: string, share: number) => void} tell gets a line about the bytes read, and their share
 * @returns {Promise<File[]>}
 * @throws {Error} if the page's file is not whole
 */
export async function embeddedModel(tell) {
  own.onProgress = () => tell(text("loading.file", megabytes()), own.done / own.total);
  return own.whole.catch((error) => {
    throw error instanceof RangeError ? new Error(text("loading.cut", megabytes())) : error;
  });
}

function megabytes() {
  const mega = (bytes) => formatted(bytes / 1e6, 1);
  return { done: mega(own.done), total: mega(own.total) };
}
