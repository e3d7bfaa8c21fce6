"""Requests in, tokens out: steps, state, scheduling. It knows no model and no text."""
