"""Conversion of a tokenizer.json to GGUF metadata."""
