"""Quantization of a model's file: types by tensor, importance matrices, and the writing of the result."""
