"""Weights cut into pieces: the bits of the whole weight, for every op that binds one, on lavapipe."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from itertools import pairwise
from math import prod

import numpy as np
import pytest
from tests.support.exhaustive import share_of
from tests.support.parity.adapters import need_driver
from tests.support.parity.cases import OP_CASES, is_narrow, one_of_each_kind, qkv_cases
from tests.support.parity.sections import PaperHost

from camelid.backends.base import OpenSpec, PoolSize
from camelid.backends.common.op_runner import OpCase, OpResult, case_plan, run_case
from camelid.backends.webgpu import shaders
from camelid.backends.webgpu.backend import WebGpuBackend, open_backend
from camelid.backends.webgpu.host_python import WgpuHost
from camelid.backends.webgpu.kernel import GPU_LANES, Context
from camelid.backends.webgpu.kernels import lowered
from camelid.backends.webgpu.layouts import STAGING_BYTES, bound_bytes, more_bytes
from camelid.backends.webgpu.limits import DEFAULTS
from camelid.backends.webgpu.lower import allocate_section, load_section, program_section
from camelid.backends.webgpu.pieces import PLACED, pieces
from camelid.errors import OutOfMemoryError
from camelid.formats.quants import row_bytes
from camelid.loading.deployment import LOADED_PROGRAMS, Deployment
from camelid.loading.options import LoadOptions
from camelid.model.presets import PRESETS
from camelid.model.sizes import bare_model
from camelid.plan.fuse import UNBOUNDED
from camelid.plan.weights import Part, Weight

pytestmark = pytest.mark.parity

# Without planes, with planes, with a codebook; a kernel places pieces of all types alike.
TYPES = {"linear": ("f32", "iq2_xs"), "linear_experts": ("q4_0",), "embed": ("q4_0",)}


def kind_of(case: OpCase) -> tuple[object, ...]:
    made = case.weights["weight"]
    is_turned = any(op.name == "transpose" for op in made.load_ops)
    return (case.op, made.type, "bias" in case.weights, is_turned, is_narrow(case))


def chosen() -> list[OpCase]:
    """The case with the most rows of each op, type and way of loading."""
    own = [c for c in OP_CASES if c.op in PLACED and c.weights["weight"].type in TYPES.get(c.op, ("f32",))]
    several = [case for case in own if prod(case.weights["weight"].shape[:-1]) > 3 and not case.of_outputs]
    return one_of_each_kind(several, kind_of)


def weight_of(case: OpCase) -> Weight:
    return next(op for op in case_plan(case)[0].ops if op.name == case.op).weight("weight")


def sizes(case: OpCase) -> list[int]:
    """Bounds that cut the weight into several pieces, and a stack also within its matrices."""
    weight = weight_of(case)
    most_of_others = max((len(w.raw) for role, w in case.weights.items() if role != "weight"), default=0)
    each, more = row_bytes(weight.type, weight.cols), more_bytes(weight.type)
    rows = {-(-weight.rows // 2), *([weight.shape[-2] - 1] if len(weight.shape) > 2 else [])}
    return [more + n * each for n in rows if most_of_others <= more + n * each < bound_bytes(weight)]


async def both(backend: WebGpuBackend, case: OpCase, n_bytes: int) -> tuple[OpResult, OpResult]:
    backend.piece_bytes = UNBOUNDED
    whole = await run_case(backend, case)
    backend.piece_bytes = n_bytes
    return whole, await run_case(backend, case)


async def different(cases: list[OpCase]) -> list[str]:
    """The cases whose bits depend on the pieces."""
    backend, wrong = WebGpuBackend(WgpuHost()), list[str]()
    await backend.open(OpenSpec(adapter=need_driver("llvmpipe")))
    for case in cases:
        for n_bytes in sizes(case):
            whole, cut = await both(backend, case, n_bytes)
            same = all(np.array_equal(whole.views[r], cut.views[r]) for r in whole.views)
            if not same or [*map(list, whole.rings)] != [*map(list, cut.rings)]:
                wrong.append(f"{case.op} {weight_of(case).type} in pieces of {n_bytes}")
    await backend.close()
    return wrong


@pytest.mark.parametrize("is_whole", share_of([False, True]))
def test_pieces_change_no_bit(is_whole: bool) -> None:
    """Ordinary runs hold a case of each op."""
    cases = chosen() if is_whole else one_of_each_kind(chosen(), lambda case: case.op)
    assert {case.op for case in cases} == {*PLACED}
    assert asyncio.run(different(cases)) == []


ERRORS = (
    ("bias", "linear", "FIRST_ROW + at", "at"),
    ("linear_narrow", "linear", "FIRST_ROW + id.x", "id.x"),
    ("embed", "embed", "PLACES - 1u) - FIRST_ROW", "PLACES - 1u)"),
    ("embed_position", "embed_position", "place - FIRST_ROW", "place"),
    ("norm_behind", "linear_add_norm", "z[to + SQUARES_AT", "z[to + N"),
    ("norm_behind", "linear_add_norm", "gain[GAIN_AT + ", "gain["),
    ("linear_experts", "linear_experts", "group.z) - FIRST_EXPERT", "group.z)"),
    ("linear_experts", "linear_experts", "group.z * Y_SLOT", "group.z * N"),
)


@pytest.mark.parametrize(("name", "op", "old", "new"), ERRORS)
def test_a_misplaced_piece_is_detected(
    name: str, op: str, old: str, new: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the kernels that a GPU gets."""
    original = shaders.text
    assert original(name).count(old) == 1
    monkeypatch.setattr("camelid.backends.webgpu.backend.SOFTWARE_LANES", GPU_LANES)
    monkeypatch.setattr(shaders, "text", lambda f: original(f).replace(old, new if f == name else old))
    cases = [case for case in chosen() if case.op == op and is_narrow(case) == (name == "linear_narrow")]
    if op == "linear":
        cases = [case for case in cases if "bias" in case.weights]
    assert asyncio.run(different(cases[:1]))


def test_the_pieces_of_a_weight_are_all_of_its_rows() -> None:
    for shape in ((1000, 512), (40, 100, 512), (3, 5000, 512)):
        whole = Weight(name="w", type="q4_0", shape=shape, parts=())
        parts = (Part("a", 5, whole.n_bytes - 2880), Part("b", 0, 2880))
        whole = replace(whole, parts=parts)
        cut = pieces(whole, 1 << 19)
        assert [piece.first for piece in cut[1:]] == [p.first + p.weight.rows for p in cut[:-1]]
        assert sum(piece.weight.rows for piece in cut) == whole.rows
        assert all(bound_bytes(piece.weight) <= 1 << 19 for piece in cut)
        ranges = [(p.source, p.offset, p.n_bytes) for piece in cut for p in piece.weight.parts]
        joined = [sum(n for source, _, n in ranges if source == part.source) for part in parts]
        assert joined == [part.n_bytes for part in parts]
        assert all(a[1] + a[2] == b[1] for a, b in pairwise(ranges) if a[0] == b[0])


def test_a_large_weight_of_another_op_is_told() -> None:
    case = next(case for case in OP_CASES if case.op == "linear_glu")
    backend = WebGpuBackend(PaperHost(), piece_bytes=4096)
    with pytest.raises(OutOfMemoryError, match=r"linear_glu binds weight of [\d,]+ bytes as a whole"):
        asyncio.run(run_case(backend, case))


def test_a_large_weight_or_cache_takes_the_parts_of_qkv() -> None:
    case = next(iter(qkv_cases()))
    plan, _ = case_plan(case)
    op = next(op for op in plan.ops if op.name == case.op)

    def parts(n_bytes: int, n_units: int) -> int:
        bounds = {"maxStorageBuffersPerShaderStage": 10, "maxStorageBufferBindingSize": n_bytes}
        pools = {state.name: PoolSize(n_units, 2, 4) for state in plan.states}
        return len(lowered(op, Context(plan, pools, GPU_LANES, {**DEFAULTS, **bounds})))

    own = bound_bytes(op.weight("weight"))
    assert [parts(own, 2), parts(own - 1, 2), parts(own, 1 << 16)] == [1, 3, 3]


@pytest.mark.parametrize("type_", ["f16", "q4_0"])
def test_an_8b_shape_fits_default_limits(type_: str) -> None:
    """No buffer and no binding of its weights, state and programs is larger; no upload above 4 MiB."""
    backend = open_backend("Vulkan")
    options = LoadOptions(backend="webgpu", context=4096, parallel=1)
    deployment = Deployment.of(bare_model(PRESETS["8b"], type_), options, backend.capabilities())
    pools, most = deployment.kv_cache().sizes(), DEFAULTS["maxStorageBufferBindingSize"]
    load = load_section(deployment.weights(), shaders.join, DEFAULTS)
    plans = [deployment.plan(program) for program in LOADED_PROGRAMS]
    programs = [program_section(plan, pools, shaders.join, GPU_LANES, DEFAULTS) for plan in plans]
    sections = [load, allocate_section(deployment.states, pools), *programs]
    sizes = {buffer["name"]: buffer["bytes"] for section in sections for buffer in section.buffers}
    bound = [place for section in sections for group in section.groups for place in group["bindings"]]
    assert max(sizes.values()) <= DEFAULTS["maxBufferSize"] and max(size for *_, size in bound) <= most
    assert all(at + size <= sizes[name] for name, at, size in bound)
    assert max(command[3] for command in load.commands if command[0] == "upload") <= STAGING_BYTES
    forecast = backend.forecast({plan.key.entry: plan for plan in plans}, pools)
    assert forecast.weights == sum(n for name, n in sizes.items() if name.startswith("weight/"))
    scratch = {plan.key.entry: sizes.get(f"scratch/{plan.key}", 0) for plan in plans}
    assert forecast.programs == scratch and scratch["decode"] > 0  # the sums of attention's runs
    n_pieces = len([name for name in sizes if name.endswith("]")])
    assert n_pieces == 2 * {"f16": 8, "q4_0": 3}[type_]  # of the embedding and of the output
