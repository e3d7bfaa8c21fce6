// Arithmetic by recursive descent: numbers, + - * / % ^, parentheses, constants and functions.

const TOKENS = /\s*(?:(\d+\.?\d*(?:e[+-]?\d+)?|\.\d+(?:e[+-]?\d+)?)|([a-z_]\w*)|(\*\*|[-+*/%^(),]))/iy;
const CONSTANTS = { pi: Math.PI, e: Math.E };
const FUNCTIONS = {
  abs: [1, Math.abs],
  acos: [1, Math.acos],
  asin: [1, Math.asin],
  atan: [1, Math.atan],
  ceil: [1, Math.ceil],
  cos: [1, Math.cos],
  exp: [1, Math.exp],
  floor: [1, Math.floor],
  ln: [1, Math.log],
  log10: [1, Math.log10],
  log2: [1, Math.log2],
  max: [0, Math.max],
  min: [0, Math.min],
  round: [1, Math.round],
  sin: [1, Math.sin],
  sqrt: [1, Math.sqrt],
  tan: [1, Math.tan],
};
const LONGEST = 2000; // characters; bounds the depth of parentheses, too
const DIGITS = 15; // of a double: 0.1 + 0.2 is 0.3

/**
 * The value of an expression.
 * @param {string} expression
 * @returns {string} a number with at most 15 digits
 * Throws Error that names the fault and its place.
 */
export function calculate(expression) {
  if (expression.length > LONGEST) throw new Error(`the expression is longer than ${LONGEST} characters`);
  const reader = new Reader(expression.replaceAll("×", "*").replaceAll("÷", "/").replaceAll("−", "-"));
  const value = sum(reader);
  if (reader.next) throw reader.fault("an operator or the end");
  if (Number.isNaN(value)) throw new Error("the expression has no real value");
  return Number.isFinite(value) ? String(Number(value.toPrecision(DIGITS))) : String(value);
}

class Reader {
  #text;
  #at = 0;

  constructor(text) {
    this.#text = text;
    this.step();
  }

  /** Reads the next token into `next`: {number}, {name}, {sign}, or null at the end. */
  step() {
    const last = this.next;
    this.start = this.#at;
    TOKENS.lastIndex = this.#at;
    const found = TOKENS.exec(this.#text);
    if (!found && this.#text.slice(this.#at).trim()) throw this.fault("a number, name or operator");
    this.#at = found ? TOKENS.lastIndex : this.#text.length;
    this.next = found && { number: found[1], name: found[2], sign: found[3] };
    return last;
  }

  /** Steps over one of the signs; undefined if another token follows. */
  take(...signs) {
    return signs.includes(this.next?.sign) ? this.step().sign : undefined;
  }

  expect(sign) {
    if (!this.take(sign)) throw this.fault(`'${sign}'`);
  }

  fault(expected) {
    const rest = this.#text.slice(this.start).trim().slice(0, 20);
    return new Error(`expected ${expected}, found ${rest ? `'${rest}'` : "the end"}`);
  }
}

function sum(reader) {
  let value = product(reader);
  for (let sign; (sign = reader.take("+", "-"));) {
    const next = product(reader);
    value = sign === "+" ? value + next : value - next;
  }
  return value;
}

function product(reader) {
  let value = signed(reader);
  for (let sign; (sign = reader.take("*", "/", "%"));) {
    const next = signed(reader);
    value = { "*": value * next, "/": value / next, "%": value % next }[sign];
  }
  return value;
}

function signed(reader) {
  const sign = reader.take("-", "+");
  if (sign) return sign === "-" ? -signed(reader) : signed(reader);
  return power(reader);
}

/** Powers bind to the right and stronger than a sign before them: -2^2 is -4. */
function power(reader) {
  const base = atom(reader);
  return reader.take("^", "**") ? base ** signed(reader) : base;
}

function atom(reader) {
  if (reader.take("(")) {
    const value = sum(reader);
    reader.expect(")");
    return value;
  }
  const { number, name } = reader.next ?? {};
  if (number === undefined && name === undefined) throw reader.fault("a number");
  if (name && !Object.hasOwn(CONSTANTS, name) && !Object.hasOwn(FUNCTIONS, name)) {
    const names = [...Object.keys(CONSTANTS), ...Object.keys(FUNCTIONS)].join(", ");
    throw reader.fault(`a number or one of ${names}`);
  }
  reader.step();
  if (number !== undefined) return Number(number);
  return Object.hasOwn(CONSTANTS, name) ? CONSTANTS[name] : call(reader, name);
}

function call(reader, name) {
  const [n, compute] = FUNCTIONS[name];
  reader.expect("(");
  const given = [sum(reader)];
  while (reader.take(",")) given.push(sum(reader));
  reader.expect(")");
  if (n && given.length !== n) throw new Error(`${name} takes ${n} number, got ${given.length}`);
  return compute(...given);
}
