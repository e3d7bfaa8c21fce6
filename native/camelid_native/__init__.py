"""Backends that need a compiler or a vendor's library; each is imported by name on first use."""
