// Images of a call as JSON: files and raw pixels become data URIs, which Python, sessions and their files have.

import { toBmp } from "./bmp.js";

const MOST_BYTES = 64 << 20; // MAX_BYTES of core/camelid/images/decode.py
const PIECE = 0x8000; // characters of one call

/** An argument of a call that cannot be sent; its name is that of Python's class. */
class RequestError extends Error {
  name = "RequestError";
}

/** The arguments of a call as JSON. Throws RequestError for images that cannot be sent. */
export function asJson(given) {
  return JSON.stringify(given, (_, value) => {
    if (value instanceof Blob) return fileUri(value);
    return ArrayBuffer.isView(value?.data) ? pixelsUri(value) : value;
  });
}

function fileUri(blob) {
  if (blob.size > MOST_BYTES) {
    throw new RequestError(`an image has ${blob.size} bytes, expected at most ${MOST_BYTES}`);
  }
  if (!globalThis.FileReaderSync) {
    throw new RequestError(
      "Node.js has no decoder of image files: give the pixels, {width, height, data} with data in RGB or RGBA",
    );
  }
  return new FileReaderSync().readAsDataURL(blob);
}

function pixelsUri({ width, height, data }) {
  const each = data.length / (width * height);
  if (!(width > 0 && height > 0) || data.BYTES_PER_ELEMENT !== 1 || ![3, 4].includes(each)) {
    const found = `${data.constructor.name} of ${data.length} for ${width} x ${height} pixels`;
    throw new RequestError(`an image has ${found}, expected 3 or 4 bytes a pixel, in RGB or RGBA`);
  }
  if (width * height * 3 > MOST_BYTES) {
    const found = `${width} x ${height} pixels`;
    throw new RequestError(`an image has ${found}, expected at most ${MOST_BYTES} bytes in RGB`);
  }
  return `data:image/bmp;base64,${toBase64(toBmp({ width, height, data }))}`;
}

function toBase64(bytes) {
  const pieces = [];
  for (let at = 0; at < bytes.length; at += PIECE) {
    pieces.push(String.fromCharCode(...bytes.subarray(at, at + PIECE)));
  }
  return btoa(pieces.join(""));
}
