"""The parity gate: tests every op, weight type and edge shape of a backend against the reference."""
