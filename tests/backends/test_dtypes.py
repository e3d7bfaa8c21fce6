"""Activations in f16 and bf16: every op of the reference against float64 rounding, some against formulas;
backends without such kernels; bytes between stages.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.support.exhaustive import in_turn
from tests.support.model import runs
from tests.support.model.stress.shapes import SHAPES
from tests.support.parity.case_tools import array, empty, f32
from tests.support.parity.cases import OP_CASES, one_of_each_kind
from tests.support.parity.compare import nmse, reference_result
from tests.support.parity.sections import PaperHost

from camelid.backends.base import Backend, OpenSpec, check_plan, reason_against
from camelid.backends.common.codecs import activations
from camelid.backends.common.op_runner import OpCase, OpResult, run_case
from camelid.backends.null.backend import NullBackend
from camelid.backends.proof.cases import all_rows
from camelid.backends.proof.compare import STORED
from camelid.backends.proof.inputs import in_dtype
from camelid.backends.reference.backend import ReferenceBackend
from camelid.backends.staged.backend import StagedBackend
from camelid.backends.webgpu.backend import WebGpuBackend
from camelid.errors import BackendError
from camelid.plan.ops import OPS
from camelid_native.cpu.backend import open_backend

DTYPES = ("f16", "bf16")
# Bits of a significand, the least exponent of a normal number, the largest number.
FORMS = {"f16": (11, -14, 65504.0), "bf16": (8, -126, float(2**128 - 2**120))}


def nearest(values: Any, dtype: str) -> Any:
    """The oracle: float32 values rounded to nearest with ties to even, in exact float64 arithmetic."""
    bits, least, largest = FORMS[dtype]
    x = np.asarray(values, np.float64).astype(np.float32).astype(np.float64)
    unit = np.ldexp(1.0, np.maximum(np.frexp(x)[1] - 1, least) - (bits - 1))
    y = np.rint(x / unit) * unit
    return np.where(np.abs(y) > largest, np.copysign(np.inf, y), y)


def edges(dtype: str) -> Any:
    """Every number of the dtype, every tie between two numbers, and the float32 on either side of a tie."""
    kind = activations.FORMATS[dtype].newbyteorder("=")
    every = np.arange(2**16, dtype=np.uint16).view(kind)
    x = activations.load(every, dtype)
    x = np.sort(x[np.isfinite(x)]).astype(np.float64)
    ties = ((x[1:] + x[:-1]) / 2).astype(np.float32)
    sides = [np.nextafter(ties, np.float32(side), dtype=np.float32) for side in (-np.inf, np.inf)]
    beyond = np.array([65519.99, 65520.0, np.finfo(np.float32).max, np.inf, -np.inf], np.float32)
    return np.concatenate([x.astype(np.float32), ties, *sides, beyond])


@pytest.mark.parametrize("dtype", DTYPES)
def test_rounding_is_to_nearest_with_ties_to_even(dtype: str) -> None:
    x = edges(dtype)
    got = activations.rounded(x, dtype)
    assert np.array_equal(got, nearest(x, dtype))
    assert np.array_equal(np.signbit(got), np.signbit(x)), "the sign of a zero differs"
    assert np.array_equal(activations.rounded(got, dtype), got)
    for seed in range(3):
        values = array(seed, 100_000, scale=10.0 ** (4 * seed - 4))
        assert np.array_equal(activations.rounded(values, dtype), nearest(values, dtype))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("bits", [0x7FC00000, 0xFFC00000, 0x7F800001, 0x7FFFFFFF, 0xFFFFFFFF])
def test_nan_stays_nan(dtype: str, bits: int) -> None:
    """Adding half a unit to the bits would turn two NaN patterns into zero."""
    nan = np.array([bits], np.uint32).view(np.float32)
    with np.errstate(invalid="ignore"):
        assert np.isnan(activations.rounded(nan, dtype)).all()


def as_given(case: OpCase, dtype: str) -> OpCase:
    """The case with its inputs rounded by the oracle, stored as float32."""
    exact = OPS[case.op].exact
    views = {role: a if role in exact else nearest(a, dtype) for role, a in case.views.items()}
    return replace(case, views={role: a.astype(np.float32) for role, a in views.items()})


def matrix_cases() -> list[OpCase]:
    """One case of each kind of the parity matrix, and the gate's cases of ops missing there."""
    cases = one_of_each_kind(OP_CASES)
    lacking = {*OPS} - {case.op for case in cases}
    return [*cases, *(row.made(t).case for row, t in all_rows(["q8_0"]) if (row.of or row.op) in lacking)]


MATRIX = matrix_cases()


def matrix_of(op: str) -> list[OpCase]:
    return [case for case in MATRIX if case.op == op]


@pytest.mark.parametrize(("op", "dtype"), in_turn([*dict.fromkeys(case.op for case in MATRIX)], [*DTYPES]))
def test_every_op_rounds_once_at_its_store(op: str, dtype: str) -> None:
    """The result equals float32 views rounded by the oracle, bit for bit; state is unchanged."""
    for case in matrix_of(op):
        with np.errstate(all="ignore"):  # numbers beyond f16's largest become infinite
            got = reference_result(in_dtype(case, dtype))
            want = add_then_norm(case, dtype) if op == "add_norm" else rounded(case, dtype)
        for role, values in got.views.items():
            assert np.array_equal(values, want.views[role], equal_nan=True), (op, role)
        for name, values in got.state.items():
            assert np.array_equal(values, want.state[name], equal_nan=True), (op, name)
        for a, b in zip(got.rows, want.rows, strict=True):
            assert (a.token_id, a.status) == (b.token_id, b.status)
            assert a.logits is None or bytes(a.logits) == bytes(b.logits or b"")


def rounded(case: OpCase, dtype: str) -> OpResult:
    """The float32 result of the rounded inputs, with each rounding view rounded by the oracle."""
    result, exact = reference_result(as_given(case, dtype)), OPS[case.op].exact
    views = {r: a if r in exact else nearest(a, dtype) for r, a in result.views.items()}
    return replace(result, views=views)


def add_then_norm(case: OpCase, dtype: str) -> OpResult:
    """The op that reads a view it wrote."""
    add = {"x": case.views["x"], "r": case.views["r"]}
    scale = {"scale": case.attrs.get("scale", 1.0)}
    added = rounded(replace(case, op="add", views=add, weights={}, attrs=scale), dtype)
    x = added.views["x"][:, case.margins[0] :][:, : case.views["x"].shape[1]]
    views, attrs = {"y": case.views["y"], "x": x.astype(np.float32)}, {"eps": case.attrs["eps"]}
    norm = rounded(replace(case, op="norm", views=views, attrs=attrs), dtype)
    return replace(added, views={**norm.views, **added.views})


def test_every_op_is_in_the_matrix() -> None:
    assert {case.op for case in MATRIX} == {*OPS} - {"tables", "candidates"}, "covered by other cases"


W, G, B = array(91, 40, 64, scale=0.1), array(92, 64), array(93, 40)
X, R = array(94, 5, 64), array(95, 5, 64)
Views = Mapping[str, Any]
# The definition in float64 over rounded inputs: [rows, cols] of the output view.
FORMULAS: dict[str, tuple[OpCase, str, Callable[[Views], Any]]] = {
    "linear": (
        OpCase(op="linear", views={"y": empty(5, 40), "x": X}, weights={"weight": f32(W), "bias": f32(B)}),
        "y",
        lambda v: v["x"] @ W.astype(np.float64).T + B,
    ),
    "norm": (
        OpCase(op="norm", views={"y": empty(5, 64), "x": X}, weights={"gain": f32(G)}, attrs={"eps": 1e-5}),
        "y",
        lambda v: v["x"] / np.sqrt((v["x"] ** 2).mean(axis=1, keepdims=True) + 1e-5) * G,
    ),
    "add": (
        OpCase(op="add", views={"x": X, "r": R}, attrs={"scale": -1.5}),
        "x",
        lambda v: v["x"] - 1.5 * v["r"],
    ),
    "glu": (
        OpCase(op="glu", views={"y": empty(5, 64), "gate": X, "up": R}, attrs={"act": "silu"}),
        "y",
        lambda v: v["gate"] / (1.0 + np.exp(-v["gate"])) * v["up"],
    ),
    "softcap": (
        OpCase(op="softcap", views={"x": 9.0 * X}, attrs={"cap": 5.0}),
        "x",
        lambda v: 5.0 * np.tanh(v["x"] / 5.0),
    ),
    "attend_rows": (
        OpCase(
            op="attend_rows",
            views={"y": empty(5, 64), "q": X, "k": R, "v": X[::-1].copy()},
            attrs={"n_heads": 1, "n_kv_heads": 1, "scale": 0.2},
        ),
        "y",
        lambda v: attended(0.2 * v["q"] @ v["k"].T) @ v["v"],
    ),
}


def attended(scores: Any) -> Any:
    return np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", FORMULAS)
def test_formulas_in_float64_agree(name: str, dtype: str) -> None:
    case, role, formula = FORMULAS[name]
    got = reference_result(in_dtype(case, dtype)).views[role]
    views = {r: nearest(a, dtype) for r, a in case.views.items()}
    want = nearest(formula(views), dtype)
    assert nmse(got, want) <= STORED[dtype]
    assert np.mean(got == want) > 0.999, "a difference away from a tie"
    assert nmse(np.float32(1.01) * got, want) > STORED[dtype]
    exact = formula({r: a.astype(np.float64) for r, a in case.views.items()})
    assert nmse(got, exact) > 1e-9, "the result was not rounded"


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_bounds_follow_their_arithmetic(dtype: str) -> None:
    """Above one element in ten on the other side of a tie, below an error of 1 %; for bf16 also below
    truncation.
    """
    x = nearest(array(5, 100_000), dtype)
    unit = np.ldexp(1.0, np.frexp(x)[1] - FORMS[dtype][0])
    flipped = np.where(np.arange(len(x)) % 10 == 0, x + unit, x)
    assert nmse(flipped, x) < STORED[dtype] < nmse(nearest(1.01 * x, dtype), x)
    if dtype == "bf16":
        bits = array(6, 100_000)
        cut = (bits.view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32)
        assert nmse(cut, nearest(bits, dtype)) > STORED[dtype]


def test_views_of_one_op_may_differ() -> None:
    """Logits: f16 in, float32 out."""
    case, _, formula = FORMULAS["linear"]
    got = reference_result(replace(case, dtypes={"x": "f16"})).views["y"]
    want = formula({"x": nearest(X, "f16")})
    assert nmse(got, want) < 1e-13 < nmse(nearest(want, "f16"), want)


def plan_of(dtype: str, *cuts: int) -> Any:
    return runs.make_plan(SHAPES["gpt_oss"].model(), 9, context=16, cuts=cuts, dtype=dtype)


def paper() -> WebGpuBackend:
    return WebGpuBackend(PaperHost())


@pytest.mark.parametrize("make", [open_backend, paper], ids=["cpu", "webgpu"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_backends_without_kernels_refuse_by_name(make: Callable[[], Any], dtype: str) -> None:
    can, case = make().capabilities(), in_dtype(FORMULAS["norm"][0], dtype)
    assert "f32" in can.dtypes and dtype not in can.dtypes
    reason = f"'{can.name}'.*no kernel for activations of {dtype}, as x.*has f32"
    with pytest.raises(BackendError, match=reason):
        check_plan(plan_of(dtype), can)
    with pytest.raises(BackendError, match=dtype):  # also without an earlier query
        asyncio.run(ran(make(), case))
    staged = StagedBackend([ReferenceBackend(), make()], (1,), len(SHAPES["gpt_oss"].spec.layers))
    assert f"{can.name} is to run" in reason_against(plan_of(dtype, 1), staged.capabilities())


async def ran(backend: Any, case: OpCase) -> OpResult:
    await backend.open(OpenSpec())
    try:
        return await run_case(backend, case)
    finally:
        await backend.close()


@pytest.mark.parametrize("make", [ReferenceBackend, NullBackend])
@pytest.mark.parametrize("dtype", ["f32", *DTYPES])
def test_other_backends_accept_every_dtype(make: Callable[[], Backend], dtype: str) -> None:
    assert reason_against(plan_of(dtype), make().capabilities()) == ""


async def logits_of(backend: Backend, dtype: str) -> Any:
    model, ids = SHAPES["gpt_oss"].model(), SHAPES["gpt_oss"].token_ids[:9]
    plan = runs.make_plan(model, 4, context=16, cuts=backend.capabilities().cuts, dtype=dtype)
    started = await runs.start(backend, [plan], runs.make_state(plan.states, context=16, n_sequences=1))
    return (await started.feed([started.open_stream(ids)], runs.cuts(4, len(ids))))[0]


@pytest.mark.parametrize("dtype", DTYPES)
def test_stages_pass_half_the_bytes_with_equal_bits(dtype: str) -> None:
    n_layers, moved = len(SHAPES["gpt_oss"].spec.layers), dict[str, int]()
    for each in ("f32", dtype):
        staged = StagedBackend([ReferenceBackend(), ReferenceBackend()], (1,), n_layers)
        got = asyncio.run(logits_of(staged, each))
        assert np.array_equal(got, asyncio.run(logits_of(ReferenceBackend(), each)))
        moved[each] = staged.memory().counters["boundary_bytes"]
    assert moved["f32"] == 2 * moved[dtype] > 0


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_null_backend_counts_fewer_bytes(dtype: str) -> None:
    """Fewer by half the bytes of each view that is not float32."""
    counted = {each: null_bytes(each) for each in ("f32", dtype)}
    views = [v for op in plan_of("f32").ops for _, v in op.views()]
    small = [v for op in plan_of(dtype).ops for _, v in op.views()]
    saved = sum(a.row_bytes - b.row_bytes for a, b in zip(views, small, strict=True))
    assert counted["f32"] - counted[dtype] == saved > 0


def null_bytes(dtype: str) -> int:
    """Bytes of a step of one row with one output."""
    backend = NullBackend()

    async def main() -> None:
        plan = plan_of(dtype)
        started = await runs.start(backend, [plan], runs.make_state(plan.states, context=16, n_sequences=1))
        step = runs._make_step(started.state, [started.open_stream([3])], (1,))
        await started.run("mixed", step)

    asyncio.run(main())
    return backend.counters["bytes"]
