// Numbers of the glass box as the language writes them.

import { language } from "./texts.js";

const UNITS = ["B", "KiB", "MiB", "GiB", "TiB"];

/** @param {number} value @param {number} [digits] significant digits */
export function number(value, digits = 3) {
  return value.toLocaleString(language(), { maximumSignificantDigits: digits });
}

export function whole(value) {
  return value.toLocaleString(language());
}

export function bytes(value) {
  const power = value ? Math.min(Math.floor(Math.log2(value) / 10), UNITS.length - 1) : 0;
  return `${number(value / 1024 ** power)} ${UNITS[power]}`;
}

/** Microseconds; a dash for a time below the clock's resolution. */
export function micros(seconds) {
  return seconds > 0 ? `${number(seconds * 1e6)} µs` : "–";
}

export function gbps(value) {
  return value === null ? "–" : number(value);
}

export function percent(value) {
  return `${number(100 * value)} %`;
}

/** @param {number[]} values @returns {number} */
export function median(values) {
  const sorted = [...values].sort((a, b) => a - b);
  const half = sorted.length >> 1;
  return sorted.length % 2 ? sorted[half] : (sorted[half - 1] + sorted[half]) / 2;
}
