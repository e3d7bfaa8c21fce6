"""Tokenizers, chat templates, tool calls and grammars: between text and token ids. Standard library only."""
