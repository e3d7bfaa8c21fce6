"""Which token comes next: options, samplers, random numbers."""
