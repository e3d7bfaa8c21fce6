"""Build of the CPU kernels: compilers, targets, command."""
