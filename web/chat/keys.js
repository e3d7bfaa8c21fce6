// Keyboard shortcuts: one table for the page and the help sheet. Alt keeps clear of the browser's own keys.

/**
 * A row's text has the key `does`; the row's action is this key without "help.". Rows without `code` are keys
 * of a field, which the field handles.
 */
export const SHORTCUTS = [
  { keys: ["Enter"], does: "help.send" },
  { keys: ["Shift", "Enter"], does: "help.line" },
  { keys: ["Esc"], does: "help.stop" },
  { keys: ["Alt", "N"], code: "KeyN", does: "help.new" },
  { keys: ["Alt", "S"], code: "KeyS", does: "help.search" },
  { keys: ["Alt", "I"], code: "KeyI", does: "help.prompt" },
  { keys: ["Alt", "R"], code: "KeyR", does: "help.regenerate" },
  { keys: ["Alt", "Up"], code: "ArrowUp", does: "help.edit" },
  { keys: ["Alt", "C"], code: "KeyC", does: "help.copy" },
  { keys: ["Alt", "M"], code: "KeyM", does: "help.models" },
  { keys: ["Alt", ","], code: "Comma", does: "help.settings" },
  { keys: ["Alt", "H"], code: "KeyH", does: "help.help" },
];

/** True while an input method composes a character: keys are its own then. */
export function isComposing(event) {
  return event.isComposing || event.keyCode === 229; // Safari ends the composition before the key
}

/** True if Escape ends something nearer than the answer: a composition, a menu, the words of a search. */
function isTaken(event) {
  const { target, defaultPrevented } = event;
  const isSearch = target instanceof HTMLInputElement && target.type === "search" && target.value !== "";
  return defaultPrevented || isSearch || Boolean(document.querySelector(":popover-open"));
}

/**
 * Runs the action of a pressed shortcut.
 * @param {Record<string, () => void>} actions by name: new, search, prompt...
 */
export function listenToKeys(actions) {
  document.addEventListener("keydown", (event) => {
    if (isComposing(event) || document.querySelector("dialog[open]")) return; // a dialog has keys of its own
    if (event.key === "Escape") return isTaken(event) || actions.stop();
    if (!event.altKey || event.ctrlKey || event.metaKey || event.shiftKey) return;
    const found = SHORTCUTS.find(({ code }) => code === event.code);
    if (!found) return;
    event.preventDefault();
    actions[found.does.slice("help.".length)]();
  });
}
