"""The Python API: load a model, generate, chat, keep a session."""
