"""Grammars of generated text: GBNF, JSON schema, regex or choice, compiled to one kind of automaton."""
