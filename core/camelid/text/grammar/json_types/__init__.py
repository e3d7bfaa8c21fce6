"""The keywords of a JSON schema as rules: one module per JSON type."""
