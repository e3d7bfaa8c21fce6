"""From a model name to a running engine."""
