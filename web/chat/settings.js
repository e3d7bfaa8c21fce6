// Settings of answers and of the page: one table with forms, ranges and kinds.

const WHOLE = /^\d+$/;
const SIGNED = /^-?\d+$/;
const NUMBER = /^-?\d*\.?\d+$/;
const MOST = Number.MAX_SAFE_INTEGER; // a seed must be exact as a JavaScript number
const number = (least, most, step) => ({ kind: "number", form: NUMBER, least, most, step });
const whole = (least, most) => ({ kind: "number", form: least < 0 ? SIGNED : WHOLE, least, most, step: 1 });

/** Options of each request, by Python's names; an empty setting leaves the choice to the model's file. */
export const SAMPLING = {
  temperature: number(0, 100, 0.1),
  top_k: whole(0, 1_000_000),
  top_p: number(0, 1, 0.05),
  min_p: number(0, 1, 0.01),
  typical_p: number(0, 1, 0.05),
  repeat_penalty: number(0.01, 10, 0.05),
  repeat_last_n: whole(-1, 1_000_000),
  frequency_penalty: number(-2, 2, 0.1),
  presence_penalty: number(-2, 2, 0.1),
  max_tokens: whole(1, MOST),
  seed: whole(0, MOST),
};

/** Settings of loading. */
const LOADING = {
  model: { form: { test: isAddress }, expected: "settings.expected.model" },
  mmproj: { form: { test: isAddress }, expected: "settings.expected.model" },
  backend: { form: /^(auto|webgpu|cpu)$/, expected: "settings.expected.backend" },
  adapter: { form: /^/ },
  threads: whole(1, 1024),
  activations: { form: /^(f32|q8)$/, expected: "settings.expected.activations" },
};

const ALL = { ...LOADING, ...SAMPLING };

function isAddress(value) {
  return value !== "" && URL.canParse(value, "http://page.invalid/");
}

/**
 * The fault of a setting's text, or null.
 * @returns {{key: string, values: object} | null} key and values of the fault's text
 */
export function faultOf(name, value) {
  if (!Object.hasOwn(ALL, name)) {
    return { key: "settings.unknown", values: { name, names: Object.keys(ALL).join(", ") } };
  }
  const entry = ALL[name];
  const isInRange =
    entry.least === undefined || (Number(value) >= entry.least && Number(value) <= entry.most);
  if (entry.form.test(value) && isInRange) return null;
  return { key: "settings.fault", values: { name, value, expected: expectation(entry) } };
}

/** Key and values of the text that names the range or kind of a setting. */
function expectation({ expected, form, least, most }) {
  if (expected) return { key: expected, values: {} };
  const kind = form === NUMBER ? "number" : "whole";
  const isOpen = most === MOST && least > 0;
  return { key: `settings.expected.${kind}${isOpen ? ".from" : ""}`, values: { least, most } };
}

/** Options of `load`. `adapter` implies backend webgpu unless a backend is named. */
export function loadOptions({ backend, adapter = "", threads, activations }) {
  const options = { backend: backend || (adapter ? "webgpu" : "auto"), adapter };
  return { ...options, ...(threads && { threads: Number(threads) }), ...(activations && { activations }) };
}

/** Options of a request: the numbers of all sampling settings that have a text. */
export function options(settings) {
  const names = Object.keys(SAMPLING).filter((name) => (settings[name] ?? "") !== "");
  return Object.fromEntries(names.map((name) => [name, Number(settings[name])]));
}

/**
 * The schema that constrains an answer. Throws SyntaxError for a text that is no JSON.
 * @param {string} text JSON Schema, or empty
 */
export function schemaOption(text) {
  return text.trim() ? { json_schema: JSON.parse(text) } : {};
}
