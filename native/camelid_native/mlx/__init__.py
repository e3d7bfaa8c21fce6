"""The MLX backend: plans as graphs of MLX, on Apple silicon's GPU or on Linux's CPU."""
