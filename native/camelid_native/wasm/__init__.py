"""CPU backend of the page: the kernels as WebAssembly."""
