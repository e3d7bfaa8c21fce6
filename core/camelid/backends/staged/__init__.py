"""Several devices as one backend."""
