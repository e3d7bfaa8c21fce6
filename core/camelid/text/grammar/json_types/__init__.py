"""What a JSON schema says, keyword by keyword, as rules: one module a JSON type."""
