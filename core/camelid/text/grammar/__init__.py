"""Grammars that a model's answer must follow: GBNF, JSON schema, regex or a choice, as one automaton."""
