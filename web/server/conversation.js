// Transcript, problem box and keys of the prompt.

export const at = (id) => document.getElementById(id);
const SPEAKERS = { user: "You said:", assistant: "Answer:" };

/** Appends a turn to the transcript; its last child is the element of its text. */
export function addTurn(role, text) {
  const element = Object.assign(document.createElement("li"), { className: SPEAKERS[role] ? role : "aside" });
  element.append(span("hidden", SPEAKERS[role] ?? `${role}:`), span("text", text));
  at("transcript").append(element);
  followEnd();
  return element;
}

export function span(className, textContent) {
  return Object.assign(document.createElement("span"), { className, textContent });
}

/** Adds a small line below a turn. */
export function addNote(element, textContent) {
  element.append(Object.assign(document.createElement("small"), { textContent }));
}

export function followEnd() {
  window.scrollTo({ top: document.body.scrollHeight });
}

export function showProblem(message, hint) {
  at("problem-text").textContent = message;
  at("problem-hint").textContent = hint;
  at("problem").hidden = false;
}

export function hideProblem() {
  at("problem").hidden = true;
}

/** Enter and the button send the prompt; the button stops a running answer; starters are prompts, too. */
export function listenToPrompt({ isBusy, submit, stop }) {
  at("form").addEventListener("submit", (event) => {
    event.preventDefault();
    if (isBusy()) stop();
    else submit(at("prompt").value);
  });
  at("prompt").addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    if (!isBusy()) submit(at("prompt").value);
  });
  at("starters").addEventListener("click", ({ target }) => {
    if (target.matches("button")) submit(target.textContent);
  });
}
