// The list of conversations by age, with search; a drawer on narrow screens.

import { ageOf } from "./ages.js";
import { damageOf } from "./checks.js";
import { at, iconButton, make } from "./elements.js";
import { isComposing } from "./keys.js";
import { text } from "./texts.js";
import { matches } from "./tree.js";

/**
 * Shows the conversations that match the search.
 * @param {import("./tree.js").Conversation[]} conversations the last changed first
 * @param {string} current id of the open conversation
 */
export function showList(conversations, current) {
  const query = at("search").value.trim();
  const isFound = (one) => !damageOf(one) && matches(one, query);
  const found = query ? conversations.filter(isFound) : conversations;
  const items = [];
  let heading = "";
  for (const one of found) {
    const age = ageOf(one.changed);
    if (age !== heading) items.push(make("li", { className: "age", textContent: text((heading = age)) }));
    items.push(row(one, one.id === current));
  }
  at("conversations").replaceChildren(...items);
  at("conversations").hidden = !items.length;
  at("no-conversations").hidden = items.length > 0;
  at("no-conversations").textContent = text(query ? "search.none" : "list.none");
}

function row(conversation, isCurrent) {
  const title = String(conversation.title || text("untitled")); // a damaged one has a row, too
  const open = make("button", { type: "button", className: "open", textContent: title, title });
  open.dataset.act = "open";
  if (isCurrent) open.setAttribute("aria-current", "true");
  const rename = iconButton("edit", "rename.of", { act: "rename" }, { title });
  const remove = iconButton("delete", "delete.of", { act: "delete" }, { title });
  const element = make("li", { className: "conversation" }, open, rename, remove);
  element.dataset.id = conversation.id;
  return element;
}

/** Opens or closes the drawer; on wide screens the sidebar always shows. */
export function showDrawer(isOpen) {
  document.body.classList.toggle("drawer", isOpen);
  at("open-sidebar").setAttribute("aria-expanded", String(isOpen));
  at("sidebar").inert = !isOpen && isNarrow();
  document.querySelector(".page").inert = isOpen && isNarrow();
  if (isOpen) at("close-sidebar").focus();
}

const narrow = matchMedia("(max-width: 47.99rem)");

export function isNarrow() {
  return narrow.matches;
}

/** Makes the drawer's buttons work. */
export function listenToDrawer() {
  const close = () => (showDrawer(false), at("open-sidebar").focus());
  at("open-sidebar").addEventListener("click", () => showDrawer(true));
  at("close-sidebar").addEventListener("click", close);
  at("shade").addEventListener("click", close);
  document.addEventListener("keydown", (event) => {
    if (event.key !== "Escape" || isComposing(event)) return;
    if (!isNarrow() || !document.body.classList.contains("drawer")) return;
    if (document.querySelector("dialog[open]")) return;
    event.preventDefault(); // Escape stops an answer otherwise
    close();
  });
  narrow.addEventListener("change", () => showDrawer(false));
  showDrawer(false);
}
