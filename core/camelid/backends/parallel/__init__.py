"""The parallel backend: several devices of one kind as one backend, each with its share of every layer."""
