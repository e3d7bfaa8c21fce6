// web/images for tests/node/test_images.py: a JSON array of [function, ...arguments] on stdin, an array of
// {value} or {error} on stdout. Bytes are base64.

import { fromBmp, toBmp } from "../../web/images/bmp.js";
import { openImage } from "../../web/images/decode.js";
import { asJson } from "../../web/images/message.js";
import { resized } from "../../web/images/resample.js";

const bytes = (text) => new Uint8Array(Buffer.from(text, "base64"));
const base64 = (data) => Buffer.from(data).toString("base64");

const FUNCTIONS = {
  resized: (rgb, ...how) => base64(resized(bytes(rgb), ...how)),
  toBmp: ({ data, ...size }) => base64(toBmp({ ...size, data: bytes(data) })),
  fromBmp: (file) => {
    const { rgb, ...size } = fromBmp(bytes(file)) ?? { rgb: new Uint8Array(0) };
    return { ...size, rgb: base64(rgb) };
  },
  planes: async (file) => base64((await openImage(bytes(file))).read().planes()),
  asJson: ({ data, blob, ...size }) => {
    return asJson({ image: blob ? new Blob([bytes(blob)]) : { ...size, data: bytes(data) } });
  },
};

let text = "";
for await (const piece of process.stdin) text += piece;
const answers = [];
for (const [name, ...given] of JSON.parse(text)) {
  try {
    answers.push({ value: await FUNCTIONS[name](...given) });
  } catch ({ name: kind, message }) {
    answers.push({ error: `${kind}: ${message}` });
  }
}
process.stdout.write(JSON.stringify(answers));
