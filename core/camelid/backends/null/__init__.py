"""The null backend: counts ops, bytes and flops, and computes nothing."""
