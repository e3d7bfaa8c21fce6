"""The CPU kernels as WebAssembly, in a page."""
