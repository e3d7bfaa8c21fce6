"""Text to token ids and back: tokenizers, chat templates, streaming. Standard library only."""
