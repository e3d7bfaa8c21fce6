"""Tokenizers as Hugging Face writes them down: tokenizer.json, step by step, each kind of step a row."""
