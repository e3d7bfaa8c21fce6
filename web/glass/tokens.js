// Tokens: the last answer once more, token by token, with the probability of each and its alternatives.

import { make } from "../elements.js";
import { button, table } from "./elements.js";
import { percent } from "./numbers.js";
import { text } from "./texts.js";

const CANDIDATES = 8;
const MOST_TOKENS = 256;

/** @param {HTMLElement} at @param {import("./glass.js").Looked} looked */
export function showTokens(at, { llm, messages, options, signal, attempt }) {
  const about = make("p", { className: "quiet" }, text("tokens.about"));
  const last = messages.findLastIndex(({ role }) => role === "user");
  if (last < 0) return at.replaceChildren(about, make("p", {}, text("tokens.none")));
  const [line, more] = [make("p", { className: "tokens" }), make("div", { ariaLive: "polite" })];
  const run = button("tokens.run", () => attempt(async () => {
    run.disabled = true;
    line.replaceChildren();
    try {
      const asked = { ...options, logprobs: CANDIDATES, max_tokens: MOST_TOKENS, signal };
      for await (const event of llm.stream(messages.slice(0, last + 1), asked)) {
        if (event.token_id !== null) line.append(await token(llm, event, more));
      }
    } finally {
      run.disabled = false;
    }
  }), "primary");
  at.replaceChildren(about, run, line, more);
}

async function token(llm, { token_id, logprob, top_logprobs = [] }, more) {
  const ids = [token_id, ...top_logprobs.map((one) => one.token_id)];
  const [own, ...others] = await llm.examine("token_texts", { token_ids: ids });
  const probability = Math.exp(logprob);
  const label = `${visible(own)} ${percent(probability)}`;
  const made = make("button", { type: "button", className: "token", title: label }, visible(own));
  made.style.setProperty("--sure", `${Math.round(100 * probability)}%`);
  made.dataset.id = token_id;
  made.dataset.logprob = logprob;
  const rows = top_logprobs.map((one, i) => candidate(one, others[i], token_id));
  const show = () => more.replaceChildren(
    table(text("tokens.at", { token: visible(own), probability: percent(probability) }),
      ["token", "id", "probability"], rows.map((one) => ({ ...one, cells: [...one.cells] }))));
  for (const event of ["click", "focus", "pointerenter"]) made.addEventListener(event, show);
  return made;
}

function candidate({ token_id, logprob }, words, chosen) {
  const mark = token_id === chosen ? " ●" : "";
  return {
    cells: [visible(words) + mark, String(token_id), percent(Math.exp(logprob))],
    values: [words, token_id, Math.exp(logprob)],
  };
}

/** A token's text with visible spaces and line ends. */
function visible(words) {
  return words.replaceAll(" ", "␣").replaceAll("\n", "⏎").replaceAll("\t", "⇥") || "∅";
}
