"""The parity gate that ships: every op, weight type and edge shape against the reference."""
