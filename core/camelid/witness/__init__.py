"""The witness log: one hash-chained line for each answered request, its check, and its replay."""
