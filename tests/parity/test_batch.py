"""Rows in one step read each weight once, and keep the bits that each row has alone (promise A)."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.support.exhaustive import every, share_of
from tests.support.parity.adapters import DRIVERS, need_driver
from tests.support.parity.case_tools import array, empty, vector, weight
from tests.support.parity.cases import OP_CASES, TYPES, norm_rope_cases, qkv_cases
from tests.support.parity.cases_state import attention_case
from tests.support.parity.cases_wide import FOUR_QUADS, TWO_QUADS, wide_case
from tests.support.parity.compare import TOLERANCE, errors, nmse, reference_result, run_on
from tests.support.parity.sections import LIMITS, module_names

from camelid.backends.base import OpenSpec
from camelid.backends.common.op_runner import OpCase, case_plan
from camelid.backends.webgpu import shaders
from camelid.backends.webgpu.backend import WebGpuBackend, launched, open_backend
from camelid.backends.webgpu.host_python import WgpuHost
from camelid.backends.webgpu.kernel import GPU_LANES, ROW_WORDS, SOFTWARE_LANES, TOKENS, Context
from camelid.backends.webgpu.kernels import KERNELS
from camelid.backends.webgpu.lower import program_section
from camelid.backends.webgpu.tape import Section
from camelid.loading.deployment import Deployment
from camelid.loading.options import LoadOptions
from camelid.model.arch import Model
from camelid.model.presets import PRESETS
from camelid.model.sizes import bare_model
from camelid.plan.op_rows_fused import deferred_cols
from camelid.plan.ops import OPS, make_op
from camelid.plan.plan import Buffer, Plan, Stage, View
from camelid.plan.step import Capacity, ProgramKey, StepLayout
from camelid.plan.weights import Part, Weight

pytestmark = pytest.mark.parity

BINDINGS = "maxStorageBuffersPerShaderStage"
ROWS, N_IN, N_OUT = 11, 288, 38
MATRICES: dict[str, tuple[int, int, dict[str, Any]]] = {  # outputs, weight rows per output, attributes
    "linear": (N_OUT, 1, {}),
    "linear_glu": (N_OUT, 2, {"act": "silu"}),
    "norm_linear": (N_OUT, 1, {"eps": 1e-5}),
    "norm_linear_glu": (N_OUT, 2, {"act": "silu", "eps": 1e-5}),
    "linear_add": (N_OUT, 1, {"scale": 0.3}),
    "linear_add_norm": (N_OUT + 2, 1, {}),
}


def case_of(op: str, type_: str, n_in: int = N_IN) -> OpCase:
    n_out, per, attrs = MATRICES[op]
    squares = array(72, ROWS, n_in // 4) ** 2
    x = array(70, ROWS, n_in)
    views = {"y": array(73, ROWS, n_out), "x": np.hstack([x, squares]) if "norm_linear" in op else x}
    weights = {"weight": weight(type_, 71, per * n_out, n_in)}
    if op in {"norm_linear", "linear_add"}:
        weights["bias"] = vector(75, n_out)
    if op == "linear_add_norm":
        views["z"] = empty(ROWS, deferred_cols(n_out))
        weights["gain"] = vector(74, n_out)
    return OpCase(op=op, views=views, weights=weights, attrs=attrs)


def alone(case: OpCase, row: int, spare: int) -> OpCase:
    """One row of the case, in a program with capacity for `spare` more."""
    return replace(case, views={role: a[row : row + 1] for role, a in case.views.items()}, spare=spare)


def outputs(driver: str, cases: Sequence[OpCase]) -> list[Any]:
    spec = OpenSpec(adapter=need_driver(driver))
    results = asyncio.run(run_on(open_backend("Vulkan"), spec, list(cases)))
    return [np.hstack(list(result.views.values())) for result in results]


@pytest.mark.parametrize("driver", share_of(DRIVERS))
@pytest.mark.parametrize("type_", share_of(reversed(TYPES)))
@pytest.mark.parametrize("lanes", share_of([GPU_LANES, SOFTWARE_LANES]))
@pytest.mark.parametrize("op", MATRICES)
def test_a_batch_changes_no_bit_of_a_row(
    op: str, lanes: int, type_: str, driver: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("camelid.backends.webgpu.backend.SOFTWARE_LANES", lanes)
    case = case_of(op, type_)
    ways = [alone(case, row, spare) for spare in (0, 1, ROWS - 1) for row in (0, 7, 8, 10)]
    together, *each = outputs(driver, [case, *ways])
    for got, row in zip(each, (0, 7, 8, 10) * 3, strict=True):
        assert np.array_equal(got[0], together[row])


@pytest.mark.exhaustive  # ordinary runs hold four quads per lane, of two ops, in the next test
@pytest.mark.parametrize("driver", DRIVERS)
@pytest.mark.parametrize("type_", TYPES)
def test_quads_that_share_a_load_keep_the_bits(
    type_: str, driver: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One, two and four quads per lane of software adapters, the last workgroup in part."""
    many = [wide_case(type_, n_out) for n_out in (N_OUT, TWO_QUADS, FOUR_QUADS)]
    cases = [*many, *(alone(case, 3, 0) for case in many)]
    assert [*map(quads_of, cases)] == [1, 4, 4, 1, 2, 4]
    wide = outputs(driver, cases)
    monkeypatch.setattr("camelid.backends.webgpu.kernel.MIN_WIDE", 1 << 31)
    monkeypatch.setattr("camelid.backends.webgpu.kernel.MIN_WIDE_ROW", 1 << 31)
    assert [*map(quads_of, cases)] == [1] * len(cases)
    for case, got, want in zip(cases, wide, outputs(driver, cases), strict=True):
        assert np.array_equal(got, want)
        assert nmse(got, next(iter(reference_result(case).views.values()))) <= TOLERANCE


@pytest.mark.parametrize("op", every(3, [*MATRICES]))
def test_every_product_with_shared_loads_keeps_the_bits(op: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Several quads per lane and quads of one, on software adapters, whole and in early pipelines."""
    case = case_of(op, "q4_0")
    cases = [case, *(alone(case, row, 0) for row in (0, 7, 10))]
    together, *each = outputs("llvmpipe", cases)
    monkeypatch.setattr("camelid.backends.webgpu.kernel.MIN_WIDE", 1)
    monkeypatch.setattr("camelid.backends.webgpu.kernel.MIN_WIDE_ROW", 1)
    monkeypatch.setattr("camelid.backends.webgpu.kernel.MIN_GROUPS", 0)
    assert [*map(quads_of, cases)] == [4] * 4
    wide, *rows = outputs("llvmpipe", cases)
    assert np.array_equal(wide, together)
    assert all(np.array_equal(row, want) for row, want in zip(rows, each, strict=True))
    host = EarlyHost()
    backend = WebGpuBackend(host, "Vulkan", has_early=True)
    (early,) = asyncio.run(run_on(backend, OpenSpec(adapter="llvmpipe"), [case]))
    assert host.n_early == 1
    assert np.array_equal(np.hstack(list(early.views.values())), together)


def quads_of(case: OpCase) -> int:
    """Quads per lane of a case on software adapters."""
    plan, _ = case_plan(case)
    op = next(op for op in plan.ops if op.name == case.op)
    context = Context(plan, {}, SOFTWARE_LANES)
    return context.quads(op)


@pytest.mark.parametrize(("lanes", "each"), share_of([(GPU_LANES, 4), (GPU_LANES, 1), (SOFTWARE_LANES, 1)]))
def test_a_batch_changes_no_bit_of_a_query_key_or_value(
    lanes: int, each: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ordinary runs hold each fourth case, among them each op."""
    monkeypatch.setattr("camelid.backends.webgpu.backend.SOFTWARE_LANES", lanes)
    for case in [*qkv_cases(), *norm_rope_cases()][::each]:
        few = replace(case, spare=0)
        many = replace(case, spare=20)
        row = replace(alone(case, 0, 0), positions=case.positions[:1])
        together, tiled, first = outputs("llvmpipe", [few, many, row])
        assert np.array_equal(together, tiled) and np.array_equal(together[0], first[0])


class EarlyHost(WgpuHost):
    """A host on which a program's early pipelines run alone."""

    def __init__(self) -> None:
        super().__init__()
        self.n_early = 0

    async def compile(self, section: Mapping[str, Any]) -> int:
        commands = [*section["commands"]]
        for command, pipeline, grid in section["early"]:
            commands[command] = ["dispatch", pipeline, commands[command][2], grid]
        self.n_early += len(section["early"])
        return await super().compile({**section, "commands": commands})


@pytest.mark.parametrize("driver", share_of(DRIVERS))
@pytest.mark.parametrize("type_", share_of(reversed(TYPES)))
def test_early_pipelines_keep_the_bits(type_: str, driver: str) -> None:
    """Rows of tokens and of outputs; a step may have more outputs than token rows."""
    cases = [case_of(op, type_) for op in MATRICES]
    cases += [case for case in OP_CASES if case.of_outputs and case.op in MATRICES]
    assert len(cases) > len(MATRICES)
    want = outputs(driver, cases)
    host = EarlyHost()
    backend = WebGpuBackend(host, "Vulkan", has_early=True)
    results = asyncio.run(run_on(backend, OpenSpec(adapter=need_driver(driver)), cases))
    assert host.n_early >= len(cases)
    for case, result, right in zip(cases, results, want, strict=True):
        assert np.array_equal(np.hstack(list(result.views.values())), right), case.op


def test_a_page_starts_with_the_pipelines_of_decode() -> None:
    """The early pipelines of a prompt's program are those of a decode step."""
    can = open_backend("Vulkan").capabilities()
    deployment = Deployment.of(bare_model(PRESETS["8b"], "q4_0"), LoadOptions(parallel=1), can)
    sizes = deployment.kv_cache().sizes()
    mixed, decode = (
        program_section(deployment.plan(program), sizes, shaders.join, SOFTWARE_LANES, LIMITS, has_early=True)
        for program in ("mixed", "decode")
    )
    first, own = mixed.compiled_json()["pipelines"], decode.compiled_json()["pipelines"]
    assert {entry["constants"].get("TOKENS", 1) for entry in first} == {1}
    assert {entry["constants"].get("TOKENS", 1) for entry in mixed.pipelines} == {1, 8}
    assert [entry["module"] for entry in own if entry not in first] == ["prelude+gather_rows"]
    assert not decode.early


ATTENTION: dict[str, OpCase] = {
    "all keys": attention_case([297, 298, 699], 4, 2, 128, 64, {}, {}, 33),
    "a window": attention_case([127, 128, 300], 4, 2, 32, 32, {"window": 150}, {"sinks": vector(37, 4)}, 0),
    "a bias": attention_case(
        [299, 511], 4, 4, 32, 80, {"softcap": 2.0}, {"bias": weight("f32", 58, 80, 4)}, 0
    ),
    "held keys": attention_case([398, 399], 2, 1, 32, 32, {"mask": "held"}, {}, 130),
    "two tiers": attention_case([320, 700], 4, 2, 48, 32, {}, {}, 0, 701, kv_type="q8_0", has_tail=True),
}


@pytest.mark.parametrize("way", ATTENTION)
def test_attention_in_parallel_runs_keeps_the_bits_of_one_workgroup(
    way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program for few rows has a workgroup per run of keys; a program for many rows, and software adapters,
    have one for all.
    """
    few = ATTENTION[way]
    many = replace(few, spare=TOKENS)
    few_files, many_files = (
        [n.removesuffix("+attend").split("+")[-1] for n in names] for names in module_names([few, many])
    )
    assert (few_files[-2:], many_files[-1]) == (["attention_part", "attention_join"], "attention")
    software = outputs("llvmpipe", [few])[0]  # a lane per key, in another order of sums
    monkeypatch.setattr("camelid.backends.webgpu.backend.SOFTWARE_LANES", GPU_LANES)
    parallel, alone_ = outputs("llvmpipe", [few, many])
    assert np.isfinite(parallel).all()
    assert np.array_equal(parallel, alone_) and nmse(parallel, software) <= TOLERANCE


def decode_section(model: Model, n_bindings: int = LIMITS[BINDINGS]) -> Section:
    can = open_backend("Vulkan").capabilities()
    options = LoadOptions(backend="webgpu", context=4096, parallel=1)
    deployment = Deployment.of(model, options, can)
    limits = LIMITS | {BINDINGS: n_bindings}
    return program_section(
        deployment.plan("decode"), deployment.kv_cache().sizes(), shaders.join, GPU_LANES, limits
    )


def launched_by_a_step(section: Section) -> int:
    step = struct.pack("<5I", 1, 1, 1, 0, 0)  # one row and one output; no page is new or copied
    return launched(section.launches, step)


@pytest.mark.parametrize(
    ("types", "n_bindings", "n_more"),
    [(("q4_k", "q6_k"), 10, 0), (("q4_0", "q8_0"), 11, 0), (("q4_0", "q8_0"), 10, 4)],
)
def test_values_of_another_type_cost_no_dispatch_with_enough_bindings(
    types: tuple[str, str], n_bindings: int, n_more: int
) -> None:
    """Chromium has ten bindings, which suffice for files of the kind of Q4_K_M."""
    type_, finer = types
    model = bare_model(PRESETS["8b"], type_)
    own = {name: replace(w, type=finer) for name, w in model.weights.items() if name.endswith("0.attn_v")}
    assert len(own) == 4
    section = decode_section(replace(model, weights={**model.weights, **own}), n_bindings)
    assert launched_by_a_step(section) == 197 + n_more


def test_an_8b_shape_with_four_thousand_keys_suits_a_large_gpu() -> None:
    """Six dispatches a layer, and enough workgroups of attention."""
    section = decode_section(bare_model(PRESETS["8b"], "q4_0"))
    assert launched_by_a_step(section) == 197
    parts = [
        i for i, entry in enumerate(section.pipelines) if entry["module"].endswith("attention_part+attend")
    ]
    (grid,) = {command[3] for command in section.commands if command[0] == "dispatch" and command[1] in parts}
    assert grid[0] * grid[2] >= 256


@pytest.mark.parametrize("entry", ["decode", "mixed"])
@pytest.mark.parametrize("op", ["linear", "linear_glu"])
def test_weights_are_read_once_for_eight_rows(op: str, entry: str) -> None:
    """A tile of weight rows has one workgroup for each eight rows of the step."""
    views = {role: View(Buffer(role, "T", 64), 64) for role in ("y", "x")}
    _, per, attrs = MATRICES[op]
    matrix = Weight(name="w", type="f32", shape=(per * 64, 64), parts=(Part("model", 0, per * 64 * 64 * 4),))
    capacity = Capacity(rows=8, sequences=8, outputs=8, updates=8)
    stage = Stage("main", (make_op(op, {**views, "weight": matrix}, attrs),))
    plan = Plan(key=ProgramKey(entry=entry, capacity=capacity), stages=(stage,), states=())
    (*_, grid), *more = program_section(plan, {}, shaders.join, 2).commands
    assert grid[1] == (StepLayout.header_word("rows"), 8) and not more


@pytest.mark.parametrize("each", share_of([4, 1]))
def test_a_grid_over_token_rows_fails_for_outputs(each: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each row-wise op has a case with more outputs than token rows; a grid over token rows misses some
    outputs. Ordinary runs compute each fourth case.
    """
    known = [case for case in OP_CASES if case.of_outputs]
    assert {case.op for case in known} >= {name for name in KERNELS if OPS[name].row_wise}
    cases = known[::each]
    want = [reference_result(case) for case in cases]
    monkeypatch.setitem(ROW_WORDS, "O", ROW_WORDS["T"])
    spec = OpenSpec(adapter=need_driver("llvmpipe"))
    got = asyncio.run(run_on(open_backend("Vulkan"), spec, cases))
    for case, result, right in zip(cases, got, want, strict=True):
        assert max(errors(result, right)) > TOLERANCE, case.op
