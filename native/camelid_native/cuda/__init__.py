"""Backend cuda: plans as captured graphs of kernels on NVIDIA and AMD GPUs (README.md)."""
