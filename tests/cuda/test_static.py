"""Machine code of the kernels for GPUs that are not here, by the vendors' compilers, against bounds."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from tests.cuda.static import Row, rows
from tests.cuda.static_listing import (
    ARCHS,
    GCN,
    NVIDIA,
    SASS,
    Code,
    assembly,
    compiled,
    missing,
    nvrtc,
    warps,
)
from tests.cuda.static_modules import all_modules, kernels_of, sample
from tests.perf.isa.kinds import Mix, kind_of
from tests.support.exhaustive import exhaustive

from camelid.errors import BackendError
from camelid_native.cuda import compiler
from camelid_native.cuda.compiler import Module
from camelid_native.cuda.kernels import KERNELS
from camelid_native.cuda.types import WEIGHT_TYPES

ORDINARY = ("sm_90", "gfx1100")
GOOD = Code(64, 0, 1024, 40, 64, Mix({"dot": 32}, {4: 1, 16: 8}))


def needed(arch: str) -> str:
    """The architecture; skips if its compiler is missing."""
    if reason := missing(arch):
        pytest.skip(reason)
    return arch


EVERY = 16  # ordinary runs compile each 16th module of the sample


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arch", "every"),
    [*((arch, EVERY) for arch in ORDINARY), *(exhaustive((arch, 1)) for arch in ARCHS)],
)
def test_no_kernel_is_beyond_a_bound(arch: str, every: int) -> None:
    found = list(rows(sample()[::every], needed(arch)))
    faults = [fault for row in found for fault in row.faults()]
    assert not faults, "\n".join(faults)
    assert found


def test_every_kernel_of_the_table_is_in_a_module() -> None:
    named = {(module.file, kernel.name) for module in all_modules() for kernel in kernels_of(module)}
    assert {(k.file, k.function) for row in KERNELS.values() for k in row.launches} <= named


def test_every_weight_type_is_in_a_module() -> None:
    types = {name.removeprefix("codec_") for module in all_modules() for name in module.headers}
    assert "linear" not in KERNELS or types >= WEIGHT_TYPES


def test_a_sample_has_every_file_and_header() -> None:
    def parts(modules: Sequence[Module]) -> set[str]:
        return {name for module in modules for name in (module.file, *module.headers)}

    assert parts(sample()) == parts(all_modules())


@pytest.mark.parametrize("arch", ["sm_90", "gfx90a"])
def test_errors_of_a_compiler_have_its_log(
    arch: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    needed(arch)
    (tmp_path / "broken.cu").write_text("extern int absent\n")
    monkeypatch.setattr(compiler, "FOLDER", tmp_path)
    compiler.file_text.cache_clear()
    with pytest.raises(BackendError, match="expected") as caught:
        list(rows([Module("broken")], arch))
    assert "error" in caught.value.message


@pytest.mark.parametrize("arch", ["sm_90", "gfx90a"])
def test_only_an_explicit_product_is_fused(
    arch: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Contraction is off, since it would change bits."""
    needed(arch)
    text = '#include "gpu.h"\nKERNEL(apart, 64)(float *p) { p[0] = p[1] * p[2] + p[3]; }\n'
    text += "KERNEL(fused, 64)(float *p) { p[0] = fma_(p[1], p[2], p[3]); }\n"
    shutil.copytree(compiler.FOLDER, tmp_path, dirs_exist_ok=True)
    (tmp_path / "products.cu").write_text(text)
    monkeypatch.setattr(compiler, "FOLDER", tmp_path)
    codes = compiled(Module("products"), arch)
    assert [codes[name].mix.kinds.get("fused", 0) for name in ("apart", "fused")] == [0, 1]


WITH_DOTS = (
    *(
        "gfx906",
        "gfx908",
        "gfx90a",
        "gfx940",
        "gfx942",
        "gfx1011",
        "gfx1012",
        "gfx1030",
        "gfx1031",
        "gfx1032",
    ),
    *("gfx1033", "gfx1034", "gfx1035", "gfx1036", "gfx1100", "gfx1101", "gfx1102", "gfx1103", "gfx1150"),
    *("gfx1151", "gfx1152", "gfx1200", "gfx1201"),
)
WITHOUT_DOTS = ("gfx900", "gfx902", "gfx904", "gfx909", "gfx90c", "gfx1010", "gfx1013")


@pytest.mark.parametrize("arch", [*WITH_DOTS, *WITHOUT_DOTS])
def test_amd_s_dot_products_are_used_where_they_are(arch: str) -> None:
    needed("gfx1100")
    text = f"{Module('quantize').text}KERNEL(dots, 64)(int *p) {{ p[0] = dot4(p[1], p[2], p[3]); }}\n"
    body = assembly(text, arch).partition("\nkernel_dots:")[2]
    assert body and ("v_dot4" in body) == (arch in WITH_DOTS)


def test_nvrtc_names_an_architecture_that_it_does_not_know() -> None:
    needed("sm_90")
    with pytest.raises(BackendError, match=r"NVRTC 13.*for sm_1: .*\n.*gpu-architecture"):
        nvrtc().image(Module("norm"), "sm_1")


def test_a_product_of_many_rows_has_matrix_instructions() -> None:
    (found,) = Row("gfx90a", "linear codec_q4_0 codes GEMM=64", True, GOOD).faults()
    assert "no matrix instructions" in found


@pytest.mark.parametrize(
    ("fault", "code"),
    [
        ("stack", replace(GOOD, scratch=12)),
        ("no load of 16", replace(GOOD, mix=Mix({"dot": 32}, {8: 8}))),
        ("no integer dot products", replace(GOOD, mix=Mix({"alu": 32}, {16: 8}))),
    ],
)
def test_each_bound_is_reported(fault: str, code: Code) -> None:
    assert not [*Row("sm_90", "linear", True, GOOD).faults()]
    assert not [*Row("sm_90", "linear", True, replace(GOOD, mix=Mix({"mma": 1}, {16: 8}))).faults()]
    (found,) = Row("sm_90", "linear", True, code).faults()
    assert fault in found
    assert len([*Row("sm_90", "norm", False, code).faults()]) == (fault == "stack")


@pytest.mark.parametrize(
    ("op", "kind", "width"),
    [
        ("LDG.E.128.CONSTANT R4, desc[UR6][R2.64]", "load", 16),
        ("LDG.E R2, desc[UR6][R2.64]", "load", 4),
        ("LDG.E.64 R2, [R2.64+0x8]", "load", 8),
        ("LDG.E.NA.128 R8, desc[UR4][R2.64]", "load", 16),
        ("LDG.E.U16 R2, [R2.64]", "load", 2),
        ("LDG.E.U8.SYS R2, [R2]", "load", 1),
        ("LDL.64 R2, [R1+0x8]", "scratch", 0),
        ("IDP.4A.S8.S8 R3, R4, R5, R3", "dot", 0),
        ("IMMA.16832.S8.S8 R4, R4.ROW, R6.COL, R8", "mma", 0),
        ("LDS.128 R4, [R2]", "alu", 0),
    ],
)
def test_a_sass_instruction_has_its_kind(op: str, kind: str, width: int) -> None:
    assert kind_of(SASS, op) == kind
    assert not width or SASS.width(op) == width


def test_matrix_instructions_of_amd_are_not_dot_products() -> None:
    assert kind_of(GCN, "v_mfma_i32_16x16x32_i8 a[0:3], v[2:3], v[4:5], a[0:3]") == "mma"
    assert kind_of(GCN, "v_wmma_i32_16x16x16_iu8 v[0:7], v[8:11], v[12:15], v[0:7]") == "mma"
    assert kind_of(GCN, "v_dot4_i32_iu8 v1, v2, v3, v1") == "dot"


# By hand, from the programming guide's limits.
@pytest.mark.parametrize(
    ("arch", "registers", "shared", "threads", "expected"),
    [
        ("sm_90", 32, 0, 256, 64),
        ("sm_90", 33, 0, 256, 48),
        ("sm_90", 255, 0, 256, 8),
        ("sm_90", 32, 0, 32, 32),
        ("sm_90", 32, 100 << 10, 256, 16),
        ("sm_80", 32, 163 << 10, 1024, 32),
        ("sm_75", 64, 0, 256, 32),
        ("sm_89", 40, 0, 256, 48),
        ("sm_89", 41, 0, 128, 40),
    ],
)
def test_warps_of_a_multiprocessor(
    arch: str, registers: int, shared: int, threads: int, expected: int
) -> None:
    assert warps(NVIDIA[arch], registers, shared, threads) == expected
