"""Learning from feedback: store, memory, gate and versions, loops, bank of hints, policies."""
