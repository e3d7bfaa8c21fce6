"""Which architectures have the matrix instructions of the kernels: kernels/arch.h has the same list."""

from __future__ import annotations

MFMA = frozenset({"gfx908", "gfx90a", "gfx940", "gfx941", "gfx942", "gfx950"})
WMMA = frozenset({
    *("gfx1100", "gfx1101", "gfx1102", "gfx1103", "gfx1150", "gfx1151", "gfx1152"),
    *("gfx1200", "gfx1201"),
})  # fmt: skip


def multiplies_codes(arch: str) -> bool:
    """True for integer matrix instructions: those of NVIDIA since sm_75."""
    return arch in MFMA | WMMA or _is_since(arch, 75)


def multiplies_halves(arch: str) -> bool:
    """True for matrix instructions of bf16 with float32 sums: NVIDIA's since sm_80."""
    return _is_since(arch, 80)


def _is_since(arch: str, least: int) -> bool:
    """True for an architecture of NVIDIA from sm_`least` on."""
    return arch.startswith("sm_") and int(arch.removeprefix("sm_")) >= least
