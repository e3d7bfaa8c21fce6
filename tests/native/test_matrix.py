"""Matrix products against NumPy in float64, and equal bits for any batch.

A quantized matrix meets int8 activations, a bf16 matrix bf16 activations: the oracle rounds its inputs by the
definition, so that only the rounding of float32 sums remains.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from itertools import product

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.golden.quant_oracle import oracle_decode, random_blocks
from tests.native.test_panels import TYPES
from tests.support.exhaustive import in_turn, share_of
from tests.support.native.kernels import F32, VARIANTS, run_linears, run_op

from camelid.backends.common.op_runner import OpCase, Quantized
from camelid.formats.quants import QUANTS

F64 = NDArray[np.float64]
FLOATS = ("f32", "f16")
MAX_NMSE = 1e-11
# NMSE of rounded activations: to 127 steps about 2^-14, to 8 bits about 2^-19.
MAX_NMSE_ROUNDED = {"bf16": 4e-6, **dict.fromkeys(FLOATS, MAX_NMSE)}
MAX_NMSE_OF_INT8 = 2e-4
ROWS = (1, 2, 3, 7, 16, 19, 40)
# Variants that differ from another only in the addition of integers.
TWINS = {"avxvnni": "avx2", "neon_i8mm": "neon_dot"}
# One type for each layout of panels.
ONE_OF_EACH = (
    *("f32", "f16", "bf16", "q4_0", "q4_1", "q5_0", "q8_0", "q2_k", "q3_k", "q5_k", "q6_k"),
    *("iq4_nl", "iq4_xs", "mxfp4", "nvfp4", "iq3_s", "q2_0"),
)


@lru_cache(32)
def weight(type_name: str, *shape: int, seed: int = 1) -> Quantized:
    """Random blocks of similar scale, so that no row of the matrix dominates another."""
    n_blocks = int(np.prod(shape)) // QUANTS[type_name].block
    blocks = random_blocks(type_name, seed, n=4 * n_blocks, finite=True)
    size = np.abs(oracle_decode(type_name, blocks).reshape(len(blocks), -1)).max(axis=1)
    kept = blocks[np.argsort(size, kind="stable")[2 * n_blocks : 3 * n_blocks]]
    return Quantized(type_name, shape, kept[np.random.default_rng(seed).permutation(n_blocks)].tobytes())


def floats(values: F32) -> Quantized:
    return Quantized("f32", values.shape, values.astype("<f4").tobytes())


@lru_cache(8)
def values(weight: Quantized) -> F64:
    """Values of the weight; cached for all variants, so read-only."""
    blocks = np.frombuffer(weight.raw, np.uint8).reshape(-1, QUANTS[weight.type].block_bytes)
    decoded = oracle_decode(weight.type, blocks).reshape(weight.shape).astype(np.float64)
    decoded.flags.writeable = False
    return decoded


def rows(n: int, cols: int, seed: int = 0) -> F32:
    return np.random.default_rng(seed).normal(size=(n, cols)).astype(np.float32)


def as_int8(x: F32) -> F64:
    """Blocks of 32 columns in 127 steps of their largest magnitude, to nearest and ties to even."""
    blocks = x.reshape(len(x), -1, 32)
    top = np.abs(blocks).max(axis=2, keepdims=True)
    by = np.divide(np.float32(127), top, out=np.zeros_like(top), where=top > 0)
    return ((top / np.float32(127)).astype(np.float64) * np.rint(blocks * by)).reshape(x.shape)


def as_bf16(x: F32) -> F64:
    """Rounded to 8 bits, to nearest and ties to even."""
    fraction, power = np.frexp(x.astype(np.float64))
    return np.ldexp(np.rint(np.ldexp(fraction, 8)), power - 8)


def seen_by(type_name: str, x: F32) -> F64:
    return SEEN[type_name](x) if type_name in SEEN else as_int8(x)


SEEN = {"bf16": as_bf16, **dict.fromkeys(FLOATS, lambda x: x.astype(np.float64))}


def nmse(got: F32 | F64, want: F64) -> float:
    return float(np.sum((got - want) ** 2) / np.sum(want**2))


def linear(type_name: str, n: int, n_out: int, cols: int, *, bias: bool = False) -> OpCase:
    weights = {"weight": weight(type_name, n_out, cols)}
    if bias:
        weights["bias"] = floats(rows(1, n_out, seed=5)[0])
    views = {"y": np.zeros((n, n_out), np.float32), "x": rows(n, cols)}
    return OpCase(op="linear", views=views, weights=weights)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("type_name", TYPES)
def test_linear(type_name: str, variant: str) -> None:
    case = linear(type_name, 19, 53, 768, bias=True)
    wide = run_op(replace(case, margins=(4, 6)), variant, 2)["y"]
    got, beside = wide[:, 4:-6], np.delete(wide, np.s_[4:-6], axis=1)
    assert not beside.any()  # excess rows of a last panel are not written
    matrix, bias = values(case.weights["weight"]), values(case.weights["bias"])
    exact = case.views["x"].astype(np.float64) @ matrix.T + bias
    assert nmse(got, seen_by(type_name, case.views["x"]) @ matrix.T + bias) <= MAX_NMSE
    assert nmse(got, exact) <= MAX_NMSE_ROUNDED.get(type_name, MAX_NMSE_OF_INT8)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("size", [2.0**40, 2.0**-20])
@pytest.mark.parametrize(("type_name", "scales", "most"), [("mxfp4", 1, 252), ("nvfp4", 4, 255)])
def test_scales_of_every_byte(type_name: str, scales: int, most: int, size: float, variant: str) -> None:
    """Each row of the matrix is one block, which begins with its scales."""
    n_out, cols = 256 // scales, QUANTS[type_name].block
    blocks = random_blocks(type_name, 3, n=n_out, finite=True)
    blocks[:, :scales] = np.minimum(np.arange(256), most).reshape(-1, scales)
    matrix = Quantized(type_name, (n_out, cols), blocks.tobytes())
    x = rows(1, cols) * np.float32(size)
    views = {"y": np.zeros((1, n_out), np.float32), "x": x}
    got = run_op(OpCase(op="linear", views=views, weights={"weight": matrix}), variant, 1)["y"][0]
    terms = values(matrix) * as_int8(x)
    sizes = np.abs(terms).sum(axis=1)
    normal = (sizes > 2.0**-120) & (sizes < 2.0**120)  # no underflow or overflow in float32
    assert normal.sum() > n_out / 2
    assert (np.abs(got - terms.sum(axis=1)) <= 1e-6 * sizes)[normal].all()


@pytest.mark.parametrize("type_name", TYPES)
def test_twins_have_the_same_bits(type_name: str) -> None:
    case = linear(type_name, 8 + 4 + 2 + 1, 53, 512)  # a tile of each width
    bits: dict[str, set[bytes]] = {}
    for variant in VARIANTS:
        bits.setdefault(TWINS.get(variant, variant), set()).add(run_op(case, variant, 2)["y"].tobytes())
    assert {len(each) for each in bits.values()} == {1}


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize(("type_name", "n_out"), [("q4_0", 16000), ("f16", 5000)])
def test_panels_in_turn(type_name: str, n_out: int, variant: str) -> None:
    """Enough panels that threads distribute them dynamically; each panel is computed once."""
    case = linear(type_name, 3, n_out, 64)
    want = run_op(case, variant, 1)["y"]
    exact = seen_by(type_name, case.views["x"]) @ values(case.weights["weight"]).T
    assert nmse(want, exact) <= MAX_NMSE
    other = replace(case, weights={"weight": weight(type_name, n_out, 64, seed=2)})
    for threads in (2, 3, 4):
        np.testing.assert_array_equal(run_linears([other, case], variant, threads), want)


@pytest.mark.parametrize(("type_name", "variant"), in_turn(ONE_OF_EACH, VARIANTS))
def test_bits_depend_on_the_row_alone(type_name: str, variant: str) -> None:
    """For any other rows, on any thread."""
    whole = linear(type_name, max(ROWS), 53, 512)
    want = run_op(whole, variant, 1)["y"]
    for n, threads in zip(ROWS, (1, 2, 3, 4, 2, 3, 4), strict=True):
        for start in {0, max(ROWS) - n}:
            views = {role: view[start : start + n] for role, view in whole.views.items()}
            got = run_op(replace(whole, views=views), variant, threads)["y"]
            np.testing.assert_array_equal(got.view(np.uint32), want[start : start + n].view(np.uint32))


@pytest.mark.parametrize("variant", VARIANTS)
def test_linears_of_one_x(variant: str) -> None:
    """Quantized rows of the previous op are reused, but not for another kind of matrix."""
    types = ("q8_0", "q4_0", "f32", "f16", "bf16", "bf16", "f32", "q6_k", "q8_0")
    cases = [linear(type_name, 5, 24 + i, 256) for i, type_name in enumerate(types)]
    for i, case in enumerate(cases):
        got, want = run_linears(cases[: i + 1], variant, 2), run_op(case, variant, 1)["y"]
        np.testing.assert_array_equal(got.view(np.uint32), want.view(np.uint32))


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("type_name", ["f32", "f16", "bf16"])
@pytest.mark.parametrize("cols", share_of([1, 31, 133, 2, 3, 100], 3))
def test_floats_of_any_width(cols: int, type_name: str, variant: str) -> None:
    case = linear(type_name, 11, 17, cols)
    want = seen_by(type_name, case.views["x"]) @ values(case.weights["weight"]).T
    for threads in (1, 2, 3):
        assert nmse(run_op(case, variant, threads)["y"], want) <= MAX_NMSE


@pytest.mark.parametrize("variant", VARIANTS)
def test_ties_of_bf16_go_to_even(variant: str) -> None:
    case = linear("bf16", 2, 16, 64)
    bits = np.arange(0x3F80, 0x3F80 + 64, dtype=np.uint32) << 16 | np.uint32(0x8000)  # halfway to the next
    x = np.stack([bits, bits | np.uint32(1 << 31)]).view(np.float32)
    eye = (np.eye(16, 64, dtype=np.float32).view(np.uint32) >> 16).astype(np.uint16)
    weights = {"weight": Quantized("bf16", (16, 64), eye.tobytes())}
    got = run_op(replace(case, views={**case.views, "x": x}, weights=weights), variant, 1)["y"]
    np.testing.assert_array_equal(got, as_bf16(x)[:, :16])
    assert not (got.view(np.uint32) & 0x1FFFF).any()


@pytest.mark.parametrize("type_name", ["q4_0", "q8_0", "q6_k", "q4_1"])
def test_activations_of_every_size(type_name: str) -> None:
    """Blocks of zeros, tiny and huge values side by side."""
    case = linear(type_name, 4, 16, 1024)
    scale = np.float32(10.0) ** np.arange(-36, 28, 2).astype(np.float32)
    x = case.views["x"] * np.repeat(scale, 32)
    x[:, 64:96], x[1] = 0, 0
    x[2, 96:] = 0
    got = run_op(replace(case, views={**case.views, "x": x}), VARIANTS[-1], 1)["y"]
    want = as_int8(x.astype(np.float32)) @ values(case.weights["weight"]).T
    assert not got[1].any()
    for row in (0, 2, 3):
        assert nmse(got[row], want[row]) <= MAX_NMSE


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("type_name", ["q4_0", "q6_k", "q4_k", "f16", "bf16"])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_values_that_are_not_finite_propagate(bad: float, type_name: str, variant: str) -> None:
    case = linear(type_name, 3, 16, 512)
    x = case.views["x"].copy()
    x[1, 77] = bad
    got = run_op(replace(case, views={**case.views, "x": x}), variant, 1)["y"]
    assert not np.isfinite(got[1]).any()
    assert np.isfinite(got[[0, 2]]).all()


def silu(x: F64) -> F64:
    return x / (1 + np.exp(-np.maximum(x, -700)))


def swiglu_oai(gate: F64, up: F64) -> F64:
    gate, up = np.minimum(gate, 7), np.clip(up, -7, 7)
    return gate / (1 + np.exp(-1.702 * np.maximum(gate, -400))) * (up + 1)


GATES = {
    "silu": lambda gate, up: silu(gate) * up,
    "relu": lambda gate, up: np.maximum(gate, 0) * up,
    "swiglu_oai": swiglu_oai,
    "none": lambda gate, up: gate * up,
}


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize(
    ("act", "n_out"),  # full and partial last panels of each half; many panels are distributed dynamically
    [*product(GATES, [16, 48, 5, 23]), ("silu", 1290)],
)
def test_linear_glu(act: str, n_out: int, variant: str) -> None:
    x = rows(9, 256)
    weights = {"weight": weight("q5_k", 2 * n_out, 256)}
    views = {"y": np.zeros((9, n_out), np.float32), "x": x}
    case = OpCase(op="linear_glu", views=views, weights=weights, attrs={"act": act})
    got = run_op(case, variant, 2)["y"]
    both = as_int8(x) @ values(weights["weight"]).T
    assert nmse(got, GATES[act](both[:, :n_out], both[:, n_out:])) <= MAX_NMSE
    one = run_op(replace(case, views={role: view[4:5] for role, view in case.views.items()}), variant, 3)["y"]
    np.testing.assert_array_equal(one[0].view(np.uint32), got[4].view(np.uint32))


def heads_case(type_name: str, n: int, *, beyond: int) -> OpCase:
    n_heads, n_out, n_in = 3, 20, 64
    views = {
        "y": np.zeros((n, n_heads * (n_out + beyond)), np.float32),
        "x": rows(n, n_heads * (n_in + beyond)),
    }
    weights = {"weight": weight(type_name, n_heads, n_out, n_in)}
    return OpCase(op="linear_heads", views=views, weights=weights)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("beyond", [0, 8])
@pytest.mark.parametrize("type_name", ["q8_0", "f16", "bf16"])
def test_linear_heads(type_name: str, beyond: int, variant: str) -> None:
    case = heads_case(type_name, 11, beyond=beyond)
    matrices = values(case.weights["weight"])
    x = case.views["x"].reshape(11, 3, -1)
    want = np.zeros((11, 3, 20 + beyond))
    for head, matrix in enumerate(matrices):
        want[:, head, :20] = seen_by(type_name, np.ascontiguousarray(x[:, head, :64])) @ matrix.T
        want[:, head, 20:] = x[:, head, 64:]
    got = run_op(case, variant, 2)["y"].reshape(want.shape)
    assert nmse(got, want) <= MAX_NMSE
    np.testing.assert_array_equal(got[..., 20:], x[..., 64:])


def experts_case(type_name: str, n: int, *, shared: bool, ids: F32 | None = None) -> OpCase:
    n_experts, n_used, n_out, n_in = 6, 3, 40, 256
    picked = [
        np.random.default_rng(t).permutation(n_experts - 1)[:n_used] for t in range(n)
    ]  # one expert has no rows
    views = {
        "y": np.zeros((n, n_used * n_out), np.float32),
        "x": rows(n, n_in if shared else n_used * n_in),
        "ids": np.array(picked, np.float32) if ids is None else ids,
    }
    bias = floats(rows(n_experts, n_out, seed=9))
    weights = {"weight": weight(type_name, n_experts, n_out, n_in), "bias": bias}
    return OpCase(op="linear_experts", views=views, weights=weights)


def experts_oracle(case: OpCase) -> F64:
    matrices, bias = values(case.weights["weight"]), values(case.weights["bias"])
    ids, n_in = case.views["ids"].astype(int), matrices.shape[2]
    x = case.views["x"].reshape(len(ids), -1, n_in)
    y = np.zeros((*ids.shape, matrices.shape[1]))
    for t, slots in enumerate(ids):
        for slot, expert in enumerate(slots):
            one = seen_by(case.weights["weight"].type, x[t, slot % x.shape[1]][None])[0]
            y[t, slot] = matrices[expert] @ one + bias[expert]
    return y.reshape(len(ids), -1)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("type_name", ["q4_k", "f32", "bf16"])
def test_linear_experts(type_name: str, shared: bool, variant: str) -> None:
    case = experts_case(type_name, 21, shared=shared)
    got = run_op(case, variant, 3)["y"]
    assert nmse(got, experts_oracle(case)) <= MAX_NMSE
    one = run_op(replace(case, views={role: view[4:5] for role, view in case.views.items()}), variant, 2)["y"]
    np.testing.assert_array_equal(one[0].view(np.uint32), got[4].view(np.uint32))


@pytest.mark.parametrize("bad", [np.nan, -1.0, 6.0, 1e30, -np.inf])
def test_an_invalid_expert_number(bad: float) -> None:
    """It counts as expert 0, and no byte outside the stack is read."""
    case = experts_case("q8_0", 2, shared=True)
    ids = case.views["ids"].copy()
    ids[1, 2] = bad
    zeroed = np.where(ids == ids, ids, 0)
    zeroed[1, 2] = 0
    got = run_op(replace(case, views={**case.views, "ids": ids}), VARIANTS[-1], 2)["y"]
    want = run_op(replace(case, views={**case.views, "ids": zeroed}), VARIANTS[-1], 2)["y"]
    np.testing.assert_array_equal(got, want)


def test_oracles_differ() -> None:
    """The oracles of int8 and float32 differ: otherwise the first test proves nothing."""
    x: Mapping[str, F32] = {"x": rows(4, 256)}
    assert 1e-6 < nmse(as_int8(x["x"]), x["x"].astype(np.float64)) < 1e-4
