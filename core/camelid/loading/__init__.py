"""Loading: from a model name to a running engine."""
