"""Metal kernels: texts, and functions of arrays that launch them."""
