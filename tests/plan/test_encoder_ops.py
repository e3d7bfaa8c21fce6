"""The contract of encoder ops: shape errors are refused, costs count the least work of a step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from camelid.errors import PlanError
from camelid.plan.builder import PlanBuilder
from camelid.plan.ops import Counts, make_op, op_bytes, op_flops
from camelid.plan.plan import Op, StateRef, View
from camelid.plan.step import Capacity, ProgramKey
from camelid.plan.weights import Weight, inline_f32

KEY = ProgramKey(entry="encode", capacity=Capacity(rows=8, sequences=2, outputs=2, updates=0))
COUNTS = Counts(rows={"T": 6, "S": 2, "O": 2}, keys=0)


def builder() -> PlanBuilder:
    return PlanBuilder(KEY, ())


def view(name: str, cols: int, rows: str = "T") -> View:
    return builder().new(name, rows, cols)


def weight(*shape: int) -> Weight:
    return inline_f32("w", [0.0] * shape[0] * shape[1], shape)


def attend_rows(
    *, q: int = 8, k: int = 4, v: int = 6, y: int = 12, bias: Weight | None = None, **attrs: Any
) -> Op:
    """An op with four heads of two, and two key-value heads."""
    operands: dict[str, Any] = {n: view(n, cols) for n, cols in (("y", y), ("q", q), ("k", k), ("v", v))}
    given = {"bias": bias} if bias else {}
    return make_op(
        "attend_rows", {**operands, **given}, {"n_heads": 4, "n_kv_heads": 2, "scale": 1.0, **attrs}
    )


def attention(bias: Weight, mask: str = "causal") -> Op:
    operands = {"y": view("y", 8), "q": view("q", 8), "bias": bias, "state": StateRef("kv")}
    return make_op("attention", operands, {"n_heads": 4, "n_kv_heads": 4, "scale": 1.0, "mask": mask})


FITS: list[Callable[[], Op]] = [
    attend_rows,
    lambda: attend_rows(mask="causal"),
    lambda: attend_rows(mask="symmetric", window=4),
    lambda: attend_rows(bias=weight(7, 4)),
    lambda: attention(weight(6, 4)),
]
DOES_NOT: dict[str, Callable[[], Op]] = {
    "heads of keys": lambda: attend_rows(k=5),
    "a narrower key": lambda: attend_rows(k=2),
    "width of what heads find": lambda: attend_rows(y=8),
    "heads for keys": lambda: attend_rows(n_kv_heads=3),
    "unknown mask": lambda: attend_rows(mask="held"),
    "no window": lambda: attend_rows(mask="symmetric"),
    "window of a full mask": lambda: attend_rows(window=4),
    "bias without a middle": lambda: attend_rows(bias=weight(6, 4)),
    "bias of other heads": lambda: attend_rows(bias=weight(7, 2)),
    "bias of attention, of other heads": lambda: attention(weight(6, 2)),
    "bias for another sequence's rows": lambda: attention(weight(6, 4), "held"),
    "width of an embedding": lambda: make_op("pool", {"y": view("y", 4), "x": view("x", 8)}, {"kind": "cls"}),
    "unknown pooling": lambda: make_op("pool", {"y": view("y", 8), "x": view("x", 8)}, {"kind": "max"}),
    "rows that are no outputs": lambda: make_op("emit", {"x": view("x", 8)}, {}),
}


@pytest.mark.parametrize("make", FITS)
def test_valid_ops_are_accepted(make: Callable[[], Op]) -> None:
    assert make().operands


@pytest.mark.parametrize("make", DOES_NOT.values(), ids=DOES_NOT)
def test_invalid_ops_are_refused(make: Callable[[], Op]) -> None:
    with pytest.raises(PlanError, match="shapes do not fit"):
        make()


def test_costs() -> None:
    """Two sequences of three rows: each row attends to three keys."""
    plan, op = builder().build(), attend_rows(bias=weight(7, 4))
    assert op_flops(op, COUNTS) == 2 * (8 + 12) * 6 * 3
    assert op_bytes(op, plan, COUNTS) == 4 * (6 * (8 + 4 + 6 + 12) + 7 * 4)
    pool = make_op("pool", {"y": view("y", 8, "O"), "x": view("x", 8)}, {"kind": "mean"})
    assert op_flops(pool, COUNTS) == 6 * 8
    assert op_bytes(pool, plan, COUNTS) == 4 * (6 + 2) * 8
    assert op_bytes(make_op("emit", {"x": view("x", 8, "O")}, {}), plan, COUNTS) == 4 * 2 * 8
