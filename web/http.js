// Bodies and parts of HTTP answers.

/**
 * The place of a part in its file, by the header content-range.
 * @param {Response} response
 * @returns {{start: number, end: number, total: number} | null} null without a valid header
 */
export function contentRange(response) {
  const match = /^bytes (\d+)-(\d+)\/(\d+)$/.exec(response.headers.get("content-range") ?? "");
  if (!match) return null;
  const [start, last, total] = match.slice(1).map(Number);
  return { start, end: last + 1, total };
}

/** Yields a body's bytes as they arrive. Safari's streams have no async iterator. */
export async function* pieces(response) {
  const reader = response.body.getReader();
  for (let next = await reader.read(); !next.done; next = await reader.read()) yield next.value;
}
