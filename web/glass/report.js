// Reports as Markdown, with the facts that a reader needs to repeat them. They are in English.

/**
 * @param {string} title
 * @param {object} info of the model
 * @param {Record<string, unknown>} facts
 * @param {string[]} heads
 * @param {unknown[][]} rows
 */
export function report(title, info, facts, heads, rows) {
  const known = {
    date: new Date().toISOString(),
    Camelid: info.version,
    model: `${info.model} (${info.weight_bytes.toLocaleString("en")} bytes of weights)`,
    backend: info.backend,
    device: info.device,
    browser: navigator.userAgent,
    processors: navigator.hardwareConcurrency,
    ...facts,
  };
  const lines = Object.entries(known).map(([name, value]) => `- ${name}: ${value}`);
  const table = [heads, heads.map(() => "---"), ...rows].map((row) => `| ${row.join(" | ")} |`);
  return [`# ${title}`, "", ...lines, "", ...table, ""].join("\n");
}
