"""Adapters of files as terms of a model's weights, and back."""
