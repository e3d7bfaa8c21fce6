"""HTTP: limits, keys, errors, and the two kinds of reply."""
