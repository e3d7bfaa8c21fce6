"""Compiles the CPU kernels."""
