// English, which the other languages fall back to.

export const EN = {
  "title": "Semantic search",
  "about":
    "An embedding model inside this page sorts {n} sentences by meaning. Nothing that you type leaves this device.",
  "chat": "Back to the chat",
  "model": "Open an embedding model",
  "model.hint":
    "A GGUF file, such as all-MiniLM-L6-v2 with 25 MB: camelid convert all-MiniLM-L6-v2 minilm.gguf --type q8_0",
  "query": "Search by meaning",
  "query.placeholder": "someone takes care of bees",
  "empty": "No model is open",
  "loading": "Loading {name}",
  "embedding": "Reading the sentences: {done} of {total}",
  "ready": "{model} on {backend} ({device}), {n} sentences",
  "processor": "On the processor: {why}",
  "setting": "The address sets {name} to '{value}', which is no value of it.",
  "failed": "The model could not be used",
  "hint": "Open a model that makes embeddings.",
  "results": "Closest sentences",
  "score": "similarity {score}",
  "found": "{n} sentences",
};
