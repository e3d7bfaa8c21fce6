// German.

export default {
  "title": "Semantische Suche",
  "about":
    "Ein Embedding-Modell in dieser Seite ordnet {n} Sätze nach ihrer Bedeutung. Nichts, was Sie eingeben, verlässt dieses Gerät.",
  "chat": "Zurück zum Chat",
  "model": "Embedding-Modell öffnen",
  "model.hint":
    "Eine GGUF-Datei, etwa all-MiniLM-L6-v2 mit 25 MB: camelid convert all-MiniLM-L6-v2 minilm.gguf --type q8_0",
  "query": "Nach Bedeutung suchen",
  "query.placeholder": "someone takes care of bees",
  "empty": "Kein Modell geöffnet",
  "loading": "{name} wird geladen",
  "embedding": "Sätze werden gelesen: {done} von {total}",
  "ready": "{model} auf {backend} ({device}), {n} Sätze",
  "processor": "Auf dem Prozessor: {why}",
  "setting": "Die Adresse setzt {name} auf „{value}“; diesen Wert gibt es nicht.",
  "failed": "Das Modell ist nicht verwendbar",
  "hint": "Öffnen Sie ein Modell, das Embeddings berechnet.",
  "results": "Ähnlichste Sätze",
  "score": "Ähnlichkeit {score}",
  "found": "{n} Sätze",
};
