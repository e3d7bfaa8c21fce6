"""Training of adapters: low-rank terms of a frozen model, from examples (README.md beside this file)."""
