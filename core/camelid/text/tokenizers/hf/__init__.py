"""Tokenizers in Hugging Face's format: tokenizer.json, one table row per kind of step."""
