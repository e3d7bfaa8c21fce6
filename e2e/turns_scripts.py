"""Scripts that `test_chat_turns.py` runs in the page."""

# Lines that a screen reader announces, from the first on.
ANNOUNCED = """addEventListener("DOMContentLoaded", () => {
  window.announced = [];
  const status = document.querySelector("[role=status]");
  new MutationObserver(() => announced.push(status.textContent))
    .observe(status, { subtree: true, childList: true, characterData: true });
})"""
# Begins an answer of many seconds, which a step of the test ends: a session lets its context shift.
BEGIN = """() => {
  window.answer = window.camelid.say("Tell me a story.", { ignore_eos: true, max_tokens: 20000 });
  window.answer.catch(() => {});
}"""
COMPOSE = """() => document.getElementById("prompt").dispatchEvent(
  new KeyboardEvent("keydown", { key: "Escape", isComposing: true, bubbles: true }))"""
GROWS = "() => document.querySelector('.assistant[aria-busy] .text')?.textContent.length > 20"
LENGTH = "() => document.querySelector('.assistant[aria-busy] .text')?.textContent.length ?? 0"
IS_HIGH = "() => document.querySelector('.assistant[aria-busy]')?.offsetHeight > 400"
# True once the page is at its end: it follows in a frame after the text has grown.
AT_END = """async () => {
  const isAtEnd = () => document.body.scrollHeight - innerHeight - scrollY < 2;
  for (const ends = performance.now() + 1000; !isAtEnd() && performance.now() < ends; )
    await new Promise(requestAnimationFrame);
  return isAtEnd();
}"""
# A second model, fetched before the answer that it ends: a transfer from the driver can outlast the answer.
FETCH = """async () => {
  const blob = await (await fetch("cria.gguf")).blob();
  window.again = new DataTransfer();
  window.again.items.add(new File([blob], "again.gguf"));
}"""
OPEN = """() => {
  const input = document.getElementById("file");
  input.files = window.again.files;
  input.dispatchEvent(new Event("change", { bubbles: true }));
}"""
STORE = """async (change) => {
  const request = indexedDB.open("camelid-chat");
  const database = await new Promise((resolve) => (request.onsuccess = () => resolve(request.result)));
  const store = database.transaction("conversations", "readwrite").objectStore("conversations");
  if (change) store.put(change);
  const all = store.getAll();
  return new Promise((resolve) => (all.onsuccess = () => (database.close(), resolve(all.result))));
}"""
ENDED = """async (tool) => {
  const { runCall } = await import(new URL("chat/tools.js", location.href));
  const stop = new AbortController();
  setTimeout(() => stop.abort(new Error("the visitor stopped the call")), 300);
  const began = performance.now();
  const call = { function: { name: "javascript", arguments: JSON.stringify({ code: "while (true) {}" }) } };
  return [await runCall(call, ["javascript"], stop.signal), performance.now() - began];
}"""
