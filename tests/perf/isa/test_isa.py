"""The reading of machine code, on listings of the first loop of `add_norm`, and the gate's bounds."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from tests.perf.isa import gate
from tests.perf.isa.compiled import Compiled
from tests.perf.isa.kinds import ISAS, Mix, hot_loop, kind_of, mix_of
from tests.perf.isa.listings import READERS, apple_listings
from tests.perf.isa.pipelines import Pipeline, pipelines_of

from camelid.engine.programs import DECODE
from camelid.model.presets import PRESETS
from camelid.model.sizes import bare_model

SAMPLES = Path(__file__).parent / "samples"
# Loads by width, stores, and arithmetic of the loop, counted by hand; a conversion is part of arithmetic.
LOOPS = {
    "amd": ({4: 2}, 1, 5),
    # Copies at the ends of both ways through the loop included.
    "nvidia": ({4: 2}, 1, 39),
    "apple": ({4: 2}, 1, 8),
    "adreno": ({4: 2}, 1, 11),
}


@pytest.mark.parametrize("isa", LOOPS)
def test_a_loop_is_found_and_counted(isa: str) -> None:
    code = READERS[isa]((SAMPLES / f"{isa}.s").read_text())
    mix = mix_of(ISAS[isa], hot_loop(ISAS[isa], code))
    assert (mix.loads, mix.kinds.get("store"), mix.arithmetic) == LOOPS[isa]
    assert "scratch" not in mix.kinds


@pytest.mark.parametrize(
    ("isa", "op", "kind", "width"),
    [
        ("amd", "buffer_load_b128 v[4:7], v3, s[8:11], 0 offen", "load", 16),
        ("amd", "global_load_dwordx4 v[4:7], v3, s[8:9]", "load", 16),
        ("amd", "global_load_u8 v1, v[2:3], off", "load", 1),
        ("amd", "buffer_load_ushort v1, v2, s[8:11], 0 offen", "load", 2),
        ("amd", "scratch_store_b32 off, v1, s0", "scratch", 0),
        ("amd", "v_dot4_i32_iu8 v1, v2, v3, v1", "dot", 0),
        ("amd", "v_cvt_f32_ubyte0_e32 v1, v2", "convert", 0),
        ("nvidia", "r8..12  = ld.global.a64.constant.b128 [r12..14+rZ], pT", "load", 16),
        ("nvidia", "r1      = ld.local.b32 [r2+0x10]", "scratch", 0),
        ("nvidia", "@!p0            bra pT L11", "flow", 0),
        ("nvidia", "ur0     = iadd3 ur0 ur1 rZ", "scalar", 0),
        ("apple", "load     r8_r9_r10_r11, du8, r7, i32, xyzw, a", "load", 16),
        ("apple", "lload    r4, r3l, 0, i32, x", "lds", 0),
        ("adreno", "isam.v.base0 (u32)(xyzw)r2.x, r1.z, s#0, t#6", "load", 16),
        ("adreno", "(sy)(nop2) cov.u8f32 r1.w, hr2.x", "convert", 0),
        ("intel", "(W) add (16|M0) r1.0<1>:d r2.0 r3.0", "scalar", 0),
        ("intel", "send (16|M0) r4 r2 null 0x0 0x4206C00 // wr:2, rd:8; load.ugm.d32x4.a32", "load", 16),
    ],
)  # fmt: skip
def test_an_instruction_has_its_kind(isa: str, op: str, kind: str, width: int) -> None:
    row = ISAS[isa]
    assert kind_of(row, op) == kind
    assert not width or row.width(row.bare(op)) == width


def test_a_repeated_and_a_paired_instruction_count_each_time() -> None:
    assert mix_of(ISAS["adreno"], ["(rpt3)add.f r1.x, r2.x, r3.x"]).arithmetic == 4
    assert mix_of(ISAS["amd"], ["v_dual_fmac_f32 v1, v2, v3 :: v_dual_fmac_f32 v4, v5, v6"]).arithmetic == 2


def test_of_one_compilation_the_longest_listing_counts() -> None:
    line = "   0: f2050000               mov      $r1, r2\n"
    shader = "shader: MESA_SHADER_COMPUTE\n"
    output = f"{shader}{line}\nother\n{line}{line}{shader}{line}"
    assert [listing.count("\n") for listing in apple_listings(output)] == [2, 1]


def matvec() -> Pipeline:
    found = pipelines_of(bare_model(PRESETS["8b"], "q4_0"), gate.OPTIONS, DECODE)
    return next(p for p in found if "K=4096 N=4096 TOKENS=1" in p.name)


def test_a_plan_s_matvec_is_known_by_its_weights() -> None:
    pipeline = matvec()
    assert (pipeline.weight_type, pipeline.products) == ("q4_0", 128)
    assert pipeline.weight_bytes == pipeline.dispatches * (4096 * 4096 * 18 // 32 + 4 * 4096)  # and a gain


def test_the_gate_reports_each_kind_of_excess() -> None:
    good = Compiled("rdna3", matvec(), stats={"Scratch size": 0}, loop=Mix({"alu": 360}, {16: 12}))
    assert list(gate.faults(good, "naga")) == []
    found = {
        "arithmetic": replace(good, loop=Mix({"alu": 400}, {16: 12})),
        "no load of 16": replace(good, loop=Mix({"alu": 360}, {4: 48})),
        "scratch": replace(good, stats={"Scratch size": 64}),
        "spills": replace(good, stats={"Spilled VGPRs": 1}),
        "no compiler": replace(good, error="no compiler"),
    }
    for word, compiled in found.items():
        (fault,) = gate.faults(compiled, "naga")
        assert word in fault


def test_two_types_in_one_dispatch_are_bounded_by_spills_alone() -> None:
    pipelines = gate.mixed()
    kinds = {(pipeline.is_tiled, pipeline.is_rounded) for pipeline in pipelines}
    assert kinds == {(False, False), (False, True), (True, False)}
    for pipeline in pipelines:
        assert "qkv" in pipeline.name.split()[0] and pipeline.weight_type == "q4_k+q6_k"
        assert not [*gate.faults(Compiled("rdna3", pipeline, stats={}, loop=Mix({"alu": 10**6})), "naga")]
        (fault,) = gate.faults(Compiled("rdna3", pipeline, stats={"Scratch size": 64}), "naga")
        assert "scratch" in fault


def test_products_of_8_bit_activations_have_bounds_where_dot_products_are_native() -> None:
    pipeline = gate.square("q4_0", "q8")
    loop = Mix({"alu": 300, "dot": 32}, {16: 4})
    assert "expected at most 1.00" in "".join(gate.faults(Compiled("rdna3", pipeline, loop=loop), "naga"))
    assert not [*gate.faults(Compiled("m1", pipeline, loop=loop), "naga")]


def test_terms_of_adapters_are_compiled_and_may_not_spill() -> None:
    pipelines = gate.adapters()
    files = {file for pipeline in pipelines for file in pipeline.files}
    assert {"experts", "one_expert", "norm_behind", "nothing_behind"} <= files
    for pipeline in pipelines:
        assert not [*gate.faults(Compiled("rdna3", pipeline, stats={}, loop=Mix({"alu": 100})), "naga")]
        (fault,) = gate.faults(Compiled("rdna3", pipeline, stats={"Scratch size": 64}), "naga")
        assert "scratch" in fault
