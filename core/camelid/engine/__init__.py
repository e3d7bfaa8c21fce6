"""The engine: continuous batching, KV cache, prefix cache and speculation, without models and text."""
