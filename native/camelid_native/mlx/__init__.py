"""MLX: Apple silicon's own path."""
