// Keyboard shortcuts: one table for the page and the help sheet. Alt keeps clear of the browser's own keys.

/** `does` names a text and, without "help.", an action of listenToKeys; rows without `code` are of fields. */
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

/**
 * Runs the action of a pressed shortcut.
 * @param {Record<string, () => void>} actions by name: new, search, prompt...
 */
export function listenToKeys(actions) {
  document.addEventListener("keydown", (event) => {
    if (document.querySelector("dialog[open]")) return; // a dialog has keys of its own
    if (event.key === "Escape" && !event.defaultPrevented) return actions.stop();
    if (!event.altKey || event.ctrlKey || event.metaKey || event.shiftKey) return;
    const found = SHORTCUTS.find(({ code }) => code === event.code);
    if (!found) return;
    event.preventDefault();
    actions[found.does.slice("help.".length)]();
  });
}
