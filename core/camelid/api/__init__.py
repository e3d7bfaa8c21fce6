"""The Python API: loading, generation, chat, sessions."""
