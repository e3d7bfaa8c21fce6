"""Sampling: options, samplers, random numbers, and the draw on the host."""
