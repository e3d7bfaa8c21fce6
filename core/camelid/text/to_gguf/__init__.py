"""A tokenizer.json as GGUF metadata."""
