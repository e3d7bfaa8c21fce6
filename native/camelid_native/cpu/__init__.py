"""The CPU backend: plans as C records, run by one call a step."""
