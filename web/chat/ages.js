// Headings of the list of conversations, by age.

const DAY_MS = 86_400_000;
const AGES = [
  ["today", 0],
  ["yesterday", 1],
  ["week", 7],
  ["earlier", Infinity],
];

/**
 * The heading for a time, by calendar days before today.
 * @param {number} time milliseconds since 1970
 * @param {number} [now]
 * @returns {"today" | "yesterday" | "week" | "earlier"}
 */
export function ageOf(time, now = Date.now()) {
  const midnight = new Date(now).setHours(0, 0, 0, 0);
  const days = Math.ceil((midnight - time) / DAY_MS);
  return AGES.find(([, most]) => days <= most)[0];
}
