"""Backends that need a compiler or a vendor's library; imported on first use, by name."""
