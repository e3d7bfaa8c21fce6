"""Which architectures have the matrix instructions of the kernels: kernels/arch.h has the same list."""

from __future__ import annotations

MFMA = frozenset({"gfx908", "gfx90a", "gfx940", "gfx941", "gfx942", "gfx950"})
WMMA = frozenset({
    *("gfx1100", "gfx1101", "gfx1102", "gfx1103", "gfx1150", "gfx1151", "gfx1152"),
    *("gfx1200", "gfx1201"),
})  # fmt: skip


def multiplies_codes(arch: str) -> bool:
    """True for integer matrix instructions: those of NVIDIA since sm_75, the oldest that NVRTC 13 knows."""
    return arch.startswith("sm_") or arch in MFMA | WMMA


def multiplies_halves(arch: str) -> bool:
    """True for matrix instructions of bf16 with float32 sums: NVIDIA's since sm_80."""
    return arch.startswith("sm_") and int(arch.removeprefix("sm_")) >= 80
