"""Adapters of local files: opened for a model, written, merged and composed."""
