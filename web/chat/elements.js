// Small elements that several parts of the page make.

import { at, make } from "../elements.js";
import { text } from "./texts.js";

export { at, make };

const SVG = "http://www.w3.org/2000/svg";

/** An icon of index.html's sprite. */
export function icon(name) {
  const drawing = document.createElementNS(SVG, "svg");
  drawing.setAttribute("class", "icon");
  drawing.setAttribute("aria-hidden", "true");
  const use = document.createElementNS(SVG, "use");
  use.setAttribute("href", `#icon-${name}`);
  drawing.append(use);
  return drawing;
}

/**
 * A button with an icon; `key` names its label, `data` its data attributes.
 * @param {string} name of the icon
 * @param {string} key
 * @param {Record<string, string>} data
 */
export function iconButton(name, key, data = {}, values = {}) {
  const label = text(key, values);
  const button = make("button", { type: "button", className: "icon-button", title: label }, icon(name));
  button.setAttribute("aria-label", label);
  Object.assign(button.dataset, data);
  return button;
}

/** Offers a file for download. */
export function download(blob, name) {
  const link = make("a", { href: URL.createObjectURL(blob), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
}

/** Says a short line to screen readers and shows it for a moment. */
export function tell(line) {
  at("toast").textContent = line;
  at("toast").classList.add("shown");
  clearTimeout(tell.timer);
  tell.timer = setTimeout(() => at("toast").classList.remove("shown"), 2500);
}
