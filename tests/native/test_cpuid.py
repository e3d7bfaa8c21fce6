"""Variants for this processor, compared with the kernel's list of its instructions."""

from __future__ import annotations

import platform
from pathlib import Path

import pytest

from camelid_native.cpu.api import Library

CPUINFO = Path("/proc/cpuinfo")
AVX2 = {"avx2", "fma", "f16c"}
AVX512 = {*AVX2, "avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512_vnni"}
# Variant -> Linux's names of its instructions.
NEEDS = {
    "portable": set[str](),
    "avx2": AVX2,
    "avxvnni": {*AVX2, "avx_vnni"},
    "avx512vnni": AVX512,
    "avx512bf16": {*AVX512, "avx512_bf16"},
    "neon_dot": {"asimddp", "asimdhp"},
    "neon_i8mm": {"asimddp", "asimdhp", "i8mm"},
}


@pytest.mark.skipif(not CPUINFO.exists(), reason="not on this platform: there is no /proc/cpuinfo")
def test_variants_match_the_processor() -> None:
    lines = CPUINFO.read_text().splitlines()
    key = "Features" if platform.machine() == "aarch64" else "flags"
    flags = next((set(line.partition(":")[2].split()) for line in lines if line.startswith(key)), None)
    if flags is None:
        pytest.skip("not on this platform: qemu shows the /proc/cpuinfo of the machine that it runs on")
    variants = Library().variants
    assert variants == {name: NEEDS[name] <= flags for name in variants}
