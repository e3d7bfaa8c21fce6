"""Readers and writers of adapter files: PEFT directories, GGUF adapters, directories of mlx-lm."""
