// Images of the next message: chosen, pasted or dropped, shown above the text field until they are sent.

import { at, iconButton, make } from "./elements.js";
import { hideProblem, showProblem } from "./status.js";
import { text } from "./texts.js";

const TYPE = /^image\/(?:bmp|gif|jpeg|png|webp)$/;
const MOST_BYTES = 16 << 20; // of a file: conversations are stored and sent with their images
const MOST = 64; // images of a request; MAX_IMAGES of core/camelid/requests/images.py

let held = []; // data URIs
let takesImages = false;

/** Makes the button, pasting and dropping work. */
export function listenToImages() {
  at("attach").addEventListener("change", ({ target }) => {
    const files = [...target.files];
    target.value = ""; // lets the visitor choose the same file again
    void add(files);
  });
  at("prompt").addEventListener("paste", (event) => taken(event, event.clipboardData));
  at("form").addEventListener("dragover", (event) => {
    if (event.dataTransfer.types.includes("Files")) event.preventDefault();
  });
  at("form").addEventListener("drop", (event) => taken(event, event.dataTransfer));
  at("images").addEventListener("click", ({ target }) => {
    const button = target.closest("button");
    if (!button) return;
    held.splice(Number(button.dataset.number), 1);
    show();
    at("prompt").focus();
  });
}

/** Shows the button for a model that takes images; images of the next message stay. */
export function showAttach(isShown) {
  takesImages = isShown;
  at("attach-label").hidden = !isShown;
}

/** The images of the next message as data URIs, which leave the composer. */
export function takeImages() {
  const images = held;
  held = [];
  show();
  return images;
}

/** Returns images to the composer, before those that it has. */
export function returnImages(images) {
  held = [...images, ...held];
  show();
}

/** Shows the images in the page's language. */
export function show() {
  at("images").replaceChildren(...held.map((image, i) => {
    const remove = iconButton("close", "images.remove", { number: `${i}` }, { n: i + 1 });
    return make("li", {}, thumbnail(image, i), remove);
  }));
  at("images").hidden = !held.length;
}

/** A small image with its number as its label. */
export function thumbnail(image, i) {
  return make("img", { src: image, alt: text("images.alt", { n: i + 1 }), className: "thumbnail" });
}

/** Takes the files of a paste or a drop, if it has some. */
function taken(event, { files }) {
  if (!files.length) return;
  event.preventDefault();
  void add([...files]);
}

async function add(files) {
  const fault = faultOf(files);
  if (fault) return showProblem(fault);
  hideProblem();
  try {
    held.push(...(await Promise.all(files.map(asUri))));
  } catch ({ message }) {
    showProblem(message); // the file is gone, or may not be read
  }
  show();
}

/** The reason why files cannot be attached, or "". */
function faultOf(files) {
  if (!takesImages) return text("images.none");
  const other = files.find(({ type }) => !TYPE.test(type));
  if (other) return text("images.type", { name: other.name });
  const large = files.find(({ size }) => size > MOST_BYTES);
  if (large) return text("images.large", { name: large.name, most: MOST_BYTES >> 20 });
  return held.length + files.length > MOST ? text("images.most", { most: MOST }) : "";
}

function asUri(file) {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(reader.result);
    reader.onerror = () => reject(reader.error);
    reader.readAsDataURL(file);
  });
}
