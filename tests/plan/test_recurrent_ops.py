"""The contract of ops with slots: shape errors are refused, costs count a slot's bytes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from camelid.errors import PlanError
from camelid.plan.builder import PlanBuilder
from camelid.plan.ops import Counts, op_bytes, op_flops
from camelid.plan.plan import StateRef, StateSpec, View
from camelid.plan.step import Capacity, ProgramKey
from camelid.plan.weights import Weight, inline_f32

KEY = ProgramKey(entry="mixed", capacity=Capacity(rows=8, sequences=2, outputs=2, updates=0))
STATE = StateRef("recurrent", 0)
SLOTS = StateSpec("recurrent", "recurrent", (0,), (("conv", 3 * 8), ("scan", 4 * 2 * 3), ("shift", 2 * 8)), 1)
COUNTS = Counts(rows={"T": 5, "S": 2, "O": 2}, keys=0)


def builder() -> PlanBuilder:
    return PlanBuilder(KEY, (SLOTS,))


def weight(*shape: int) -> Weight:
    return inline_f32("w", [0.0] * shape[0] * (shape[1] if len(shape) > 1 else 1), shape)


def conv(plan: PlanBuilder, *, cols: int = 8, channels: int = 8, width: int = 4, bias: int = 8) -> View:
    return plan.conv1d(plan.new("x", "T", cols), weight(channels, width), state=STATE, bias=weight(bias))


def mamba2(
    plan: PlanBuilder, *, x: int = 8, b: int = 6, c: int = 6, heads: int = 4, n_groups: int = 2, a: int = 4
) -> View:
    views: dict[str, Any] = {
        name: plan.new(name, "T", cols) for name, cols in (("x", x), ("b", b), ("c", c), ("dt", heads))
    }
    return plan.scan_mamba2(**views, state=STATE, n_groups=n_groups, a=weight(a, 1), d=weight(4))


def delta(
    plan: PlanBuilder, *, q: int = 6, k: int = 6, v: int = 8, heads: int = 4, beta: int = 4, n_keys: int = 2
) -> View:
    sizes = {"q": q, "k": k, "v": v, "dt": heads, "beta": beta}
    views: dict[str, Any] = {name: plan.new(name, "T", cols) for name, cols in sizes.items()}
    return plan.scan_delta(**views, state=STATE, n_key_heads=n_keys, scale=1.0, a=weight(4))


def shift(plan: PlanBuilder, *, cols: int = 4, lerp: int = 4, part: int = 1) -> View:
    return plan.token_shift(plan.new("x", "T", cols), weight(2, lerp), state=STATE, part=part)


def rwkv6(plan: PlanBuilder, *, w: int = 8, k: int = 4, v: int = 4, u: int = 2, n_heads: int = 2) -> View:
    views: dict[str, Any] = {
        name: plan.new(name, "T", cols) for name, cols in (("r", 8), ("w", w), ("k", k), ("v", v))
    }
    return plan.scan_rwkv6(**views, state=STATE, n_heads=n_heads, u=weight(u, 4))


def rwkv7(plan: PlanBuilder, *, k: int = 8, a: int = 8, k_k: int = 8, n_heads: int = 2) -> View:
    views: dict[str, Any] = {
        name: plan.new(name, "T", cols) for name, cols in (("r", 8), ("w", 8), ("k", k), ("v", 8), ("a", a))
    }
    return plan.scan_rwkv7(**views, state=STATE, n_heads=n_heads, k_k=weight(k_k), k_a=weight(8))


def bonus(plan: PlanBuilder, *, x: int = 8, r_k: int = 8, n_heads: int = 2) -> View:
    views: dict[str, Any] = {name: plan.new(name, "T", 8) for name in "rkva"}
    y = plan.new("y", "T", x)
    plan.bonus_rwkv7(y, **views, n_heads=n_heads, k_a=weight(8), r_k=weight(r_k))
    return y


def mamba(plan: PlanBuilder) -> View:
    """A decay for each of the 3 columns of a head's state."""
    return mamba2(plan, a=12)


@pytest.mark.parametrize("op", [conv, mamba, mamba2, delta, shift, rwkv6, rwkv7, bonus])
def test_valid_shapes_are_accepted_unchanged(op: Callable[..., View]) -> None:
    assert op(builder()).cols == 8


@pytest.mark.parametrize(
    ("op", "wrong"),
    [
        (conv, {"cols": 9}),
        (conv, {"bias": 4}),
        (conv, {"width": 1}),
        (mamba2, {"x": 9}),
        (mamba2, {"c": 4}),
        (mamba2, {"n_groups": 3}),
        (mamba2, {"b": 7, "c": 7}),
        (mamba2, {"a": 3}),
        (delta, {"v": 9}),
        (delta, {"q": 4}),
        (delta, {"beta": 2}),
        (delta, {"n_keys": 3}),
        (delta, {"q": 7, "k": 7}),
        (delta, {"heads": 2, "beta": 2}),
        (shift, {"lerp": 8}),
        (shift, {"part": -1}),
        (rwkv6, {"w": 4}),
        (rwkv6, {"v": 8}),
        (rwkv6, {"k": 6, "v": 6}),
        (rwkv6, {"k": 2, "v": 2}),
        (rwkv6, {"u": 1}),
        (rwkv6, {"n_heads": 3}),
        (rwkv7, {"k": 4}),
        (rwkv7, {"a": 2}),
        (rwkv7, {"k_k": 4}),
        (rwkv7, {"n_heads": 3}),
        (rwkv7, {"n_heads": 0}),
        (bonus, {"x": 4}),
        (bonus, {"r_k": 2}),
        (bonus, {"n_heads": 3}),
    ],
)
def test_invalid_shapes_are_refused(op: Callable[..., View], wrong: dict[str, int]) -> None:
    with pytest.raises(PlanError, match="shapes do not fit"):
        op(builder(), **wrong)


@pytest.mark.parametrize(
    ("op", "view_cols", "weight_floats", "slot", "flops"),
    [
        (conv, 8 + 8, 8 * 4 + 8, 3 * 8, 2 * 5 * 8 * 4),
        (mamba2, 8 + 8 + 6 + 6 + 4, 4 + 4, 4 * 2 * 3, 6 * 5 * 24),
        (delta, 8 + 6 + 6 + 8 + 4 + 4, 4, 4 * 2 * 3, 8 * 5 * 24),
        (shift, 4 + 8, 8, 2 * 8, 3 * 5 * 8),
        (rwkv6, 3 * 8 + 2 * 4, 8, 4 * 2 * 3, 5 * 5 * 8 * 4),
        (rwkv7, 6 * 8, 8 + 8, 4 * 2 * 3, 9 * 5 * 8 * 4),
    ],
)
def test_costs(op: Callable[..., View], view_cols: int, weight_floats: int, slot: int, flops: int) -> None:
    """Views and weights once, and a slot read and written for each of two sequences."""
    plan = builder()
    op(plan)
    built = plan.build()
    (made,) = built.ops
    assert op_bytes(made, built, COUNTS) == 4 * (5 * view_cols + weight_floats + 2 * 2 * slot)
    assert op_flops(made, COUNTS) == flops
