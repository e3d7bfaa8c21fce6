"""The reference backend: NumPy, float64, one row at a time. Every other backend is held to it."""
