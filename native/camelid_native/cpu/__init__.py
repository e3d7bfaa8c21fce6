"""CPU backend: plans as C records, one call per step."""
