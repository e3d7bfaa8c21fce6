"""Turns a prompt and its options into an engine request, and token ids into text."""
