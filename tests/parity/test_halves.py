"""Weights of two types in one dispatch of `qkv`: the bits of two dispatches, on lavapipe."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np
import pytest
from tests.parity.test_batch import EarlyHost
from tests.support.exhaustive import exhaustive, share_of
from tests.support.parity.adapters import need_driver
from tests.support.parity.cases import QkvWay, qkv_case
from tests.support.parity.compare import errors, reference_result, run_on
from tests.support.parity.rounded import q8_capabilities, q8_result
from tests.support.parity.sections import LIMITS, PaperHost

from camelid.backends.base import OpenSpec, PoolSize
from camelid.backends.common.op_runner import OpCase, OpResult, case_plan, run_case
from camelid.backends.proof.compare import allowed
from camelid.backends.proof.gate import inputs_of
from camelid.backends.webgpu import halves, shaders
from camelid.backends.webgpu.backend import WebGpuBackend, open_backend
from camelid.backends.webgpu.kernel import GPU_LANES, SOFTWARE_LANES, Context
from camelid.backends.webgpu.kernels import lowered
from camelid.backends.webgpu.kernels_matrix import TILES_X
from camelid.backends.webgpu.layouts import LAYOUTS, PACKED, codec_constants, reads_words
from camelid.plan.weights import Weight

pytestmark = pytest.mark.parity

PAIRS = (
    ("q4_k", "q6_k"), ("q5_k", "q6_k"), ("q4_0", "q8_0"), ("f16", "q8_0"), ("iq2_xxs", "iq4_xs"),
    ("iq3_s", "q5_k"), ("q8_0", "bf16"), ("affine3", "affine6"),
)  # fmt: skip
# One token row, several, and tiles; the columns of values fill no workgroup.
WAYS: tuple[QkvWay, ...] = (
    ("norm_qkv", "neox", 32, 0, "f16", 36, [7]),
    ("qkv", "norm", 16, 8, "f32", 36, [3, 4, 5]),  # with biases
    ("norm_qkv", "norm", 32, 0, "f16", 36, range(4, 74)),
    ("qkv", "neox", 32, 0, "f16", 36, [7]),
    ("norm_qkv", "neox", 16, 12, "f16", 36, [3, 4, 5]),
    ("qkv", "neox", 32, 0, "f32", 36, range(4, 74)),
)
OTHERS = (3, 7)  # of PAIRS in ordinary runs: floats beside codes, planes
APART = "camelid.backends.webgpu.kernels_qkv._is_one_dispatch"


def mixed(way: QkvWay, pair: tuple[str, str], activations: str = "f32") -> OpCase:
    case = qkv_case(way, *pair, 512)
    return inputs_of(case, q8_capabilities())[0] if activations == "q8" else case


def sample() -> Iterator[object]:
    """Pair, way, lanes, activations. In ordinary runs the most common pair with each of the first ways, two
    others with one of them.
    """
    many = product(enumerate(PAIRS), enumerate(WAYS), (GPU_LANES, SOFTWARE_LANES), ("f32", "q8"))
    for (i, pair), (j, way), lanes, activations in many:
        if activations == "q8" and not {*pair} <= PACKED:
            continue
        is_plain = (lanes, activations) == (GPU_LANES, "f32")
        is_few = j < 3 and (is_plain or (i == 0 and j == 2)) and (i == 0 or (i in OTHERS and i % 3 == j))
        one = (pair, way, lanes, activations)
        yield one if is_few else exhaustive(one)


def outcome(case: OpCase, lanes: int, activations: str) -> OpResult:
    spec = OpenSpec(adapter=need_driver("llvmpipe"), activations=activations)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("camelid.backends.webgpu.backend.SOFTWARE_LANES", lanes)
        return asyncio.run(run_on(open_backend("Vulkan"), spec, [case]))[0]


@pytest.mark.parametrize(("pair", "way", "lanes", "activations"), [*sample()])
def test_one_dispatch_has_the_bits_of_two(
    pair: tuple[str, str], way: QkvWay, lanes: int, activations: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = mixed(way, pair, activations)
    together = outcome(case, lanes, activations)
    is_rounded = activations == "q8"
    want = q8_result(case) if is_rounded else reference_result(case)
    can = q8_capabilities() if is_rounded else open_backend("Vulkan").capabilities()
    assert max(errors(together, want)) <= allowed(case, can)
    monkeypatch.setattr(APART, lambda op, context: False)
    apart = outcome(case, lanes, activations)
    assert np.array_equal(together.views["y"], apart.views["y"])
    assert all(np.array_equal(together.state[name], rows) for name, rows in apart.state.items())


@pytest.mark.parametrize(("way", "n_quads"), share_of(product(WAYS[:2], ([4, 4], [4, 1])), 2))
def test_halves_with_several_quads_per_lane_keep_the_bits(
    way: QkvWay, n_quads: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """On software adapters: both halves have them, or that with more weights alone."""
    case = mixed(way, PAIRS[0])
    want = outcome(case, SOFTWARE_LANES, "f32")
    least = 1 if n_quads == [4, 4] else 40 * 512
    monkeypatch.setattr("camelid.backends.webgpu.kernel.MIN_WIDE", least)
    monkeypatch.setattr("camelid.backends.webgpu.kernel.MIN_WIDE_ROW", least)
    monkeypatch.setattr("camelid.backends.webgpu.kernel.MIN_GROUPS", 0)
    plan, _ = case_plan(case)
    op, context = next(op for op in plan.ops if op.name == case.op), Context(plan, {}, SOFTWARE_LANES)
    assert [context.quads(op, role) for role in ("weight", "v_weight")] == n_quads
    got = outcome(case, SOFTWARE_LANES, "f32")
    assert np.array_equal(got.views["y"], want.views["y"])
    assert all(np.array_equal(got.state[name], rows) for name, rows in want.state.items())


def test_halves_share_no_number_of_a_type() -> None:
    for type_ in LAYOUTS:
        weight = Weight(name="w", type=type_, shape=(32, 512), parts=())
        assert codec_constants(weight).keys() <= halves.OWN


def test_early_pipelines_of_both_halves_keep_the_bits() -> None:
    """Kernels of one token row, which run first in a page on a software adapter."""
    case, host = mixed(WAYS[1], PAIRS[0]), EarlyHost()
    backend = WebGpuBackend(host, "Vulkan", has_early=True)
    (early,) = asyncio.run(run_on(backend, OpenSpec(adapter=need_driver("llvmpipe")), [case]))
    assert host.n_early == 1
    assert np.array_equal(early.views["y"], outcome(case, SOFTWARE_LANES, "f32").views["y"])


def section_of(case: OpCase, activations: str) -> dict[str, Any]:
    """The case's program."""
    host = PaperHost()
    backend = WebGpuBackend(host)
    asyncio.run(backend.open(OpenSpec(activations=activations)))
    asyncio.run(run_case(backend, case))
    return next(section for section in host.sections if section["kind"] == "program")


def products(section: dict[str, Any]) -> list[dict[str, Any]]:
    return [entry for entry in section["pipelines"] if "+qkv" in entry["module"]]


@pytest.mark.parametrize("activations", ["f32", "q8"])
def test_a_half_has_the_constants_of_its_own_kernel(
    activations: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for pair, way in product(PAIRS, WAYS):
        monkeypatch.undo()
        both = section_of(mixed(way, pair), activations)
        if activations == "q8" and len({type_ in PACKED for type_ in pair}) == 2:
            assert len(products(both)) == 2, "a half with rounded x, a half without"
            continue
        monkeypatch.setattr(APART, lambda op, context: False)
        first, second = (entry["constants"] for entry in products(section_of(mixed(way, pair), activations)))
        (one,) = products(both)
        known = one["constants"]
        assert first.items() <= known.items()
        for name, value in second.items():
            assert known.get(f"v_{name}", known.get(name)) == value, name


def test_all_modules_have_workgroup_memory_once_and_all_their_bindings() -> None:
    types = [*LAYOUTS]
    for pair in zip(types, [*types[1:], types[0]], strict=True):
        for way, activations in product((WAYS[0], WAYS[2]), ("f32", "q8")):
            section = section_of(qkv_case(way, *pair, 512), activations)
            for one in products(section):
                wgsl = section["modules"][one["module"]]
                declared = re.findall(r"@binding\((\d+)\)", wgsl)
                assert sorted(map(int, declared)) == [*range(len(section["layouts"][one["layout"]]))]
                assert "var<workgroup> v_" not in wgsl


@pytest.mark.parametrize("type_", LAYOUTS)
def test_a_codec_reads_words_as_its_layout_tells(type_: str) -> None:
    texts = halves.declarations(shaders.join(*LAYOUTS[type_].files))
    assert any("words" in words_of(texts[name]) for name in reached(texts, "chunk_at")) == reads_words(type_)


def reached(texts: Mapping[str, str], first: str) -> set[str]:
    """Names of the declarations that a declaration mentions, itself or by others."""
    found, new = {first}, {first}
    while new:
        new = {name for one in new for name in words_of(texts[one]) if name in texts} - found
        found |= new
    return found


def words_of(text: str) -> set[str]:
    return {*re.findall(r"\w+", text)}


def n_ops(case: OpCase, n_bindings: int) -> int:
    """Ops that run in place of the case's op."""
    plan, _ = case_plan(case)
    limits = LIMITS | {"maxStorageBuffersPerShaderStage": n_bindings}
    pools = {state.name: PoolSize(2, 2, 4) for state in plan.states}
    op = next(op for op in plan.ops if op.name == case.op)
    return len(lowered(op, Context(plan, pools, GPU_LANES, limits)))


BOUNDS: Sequence[tuple[tuple[str, str], QkvWay, int]] = (  # and bindings, the step included
    (("q4_k", "q6_k"), WAYS[0], 10),
    (("q4_0", "q8_0"), WAYS[0], 11),
    (("q4_k", "q6_k"), WAYS[1], 12),
)


@pytest.mark.parametrize(("pair", "way", "n"), BOUNDS)
def test_a_device_with_fewer_bindings_has_more_dispatches(pair: tuple[str, str], way: QkvWay, n: int) -> None:
    """Below ten, it has the parts of the op."""
    case = mixed(way, pair)
    assert [n_ops(case, n), n_ops(case, n - 1), n_ops(case, 9)] == [1, 2 if n > 10 else 4, 4]


def test_halves_of_many_rows_have_two_dispatches() -> None:
    """A dispatch of both has one row of workgroups."""
    op, style, dim, offset, kv_type, _, positions = WAYS[0]
    most = TILES_X - 192
    assert [
        n_ops(qkv_case((op, style, dim, offset, kv_type, n, positions), "q8_0", "f16"), 16)
        for n in (most, most + 4)
    ] == [1, 2]
