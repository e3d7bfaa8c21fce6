"""The reference backend: NumPy, float64, one row at a time. Other backends are tested against it."""
