"""Cases of encoders: attention over the rows of the step, pooling, floats as results."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from tests.support.parity.case_tools import array, empty, f32

from camelid.backends.common.op_runner import OpCase

LENGTHS = (9, 1, 40, 140)  # of the sequences in a step: below and above two tiles of 64 keys
MASKS: tuple[dict[str, Any], ...] = (
    {},
    {"mask": "causal"},
    {"mask": "symmetric", "window": 12},
    {"mask": "symmetric", "window": 200},
)


def encoder_cases() -> Iterator[OpCase]:
    for mask in MASKS:
        for weights in ({}, {"bias": f32(array(8, 13, 6))}):
            yield attend_rows_case((6, 2, 32, 24), mask, weights)
    yield attend_rows_case((2, 2, 72, 72), {}, {}, LENGTHS[:3])
    yield attend_rows_case((2, 1, 512, 320), MASKS[1], {}, LENGTHS[:3])  # values of more than one side
    yield attend_rows_case((2, 1, 32, 512), {"scale": 9.0}, {}, LENGTHS[:3])
    yield from answer_cases()


def attend_rows_case(
    heads: tuple[int, int, int, int], how: dict[str, Any], weights: Any, lengths: Sequence[int] = LENGTHS
) -> OpCase:
    """`heads` are heads of queries, of keys, and columns of a head of keys and of values."""
    n_heads, n_kv_heads, dim, v_dim = heads
    cols = {"y": n_heads * v_dim, "q": n_heads * dim, "k": n_kv_heads * dim, "v": n_kv_heads * v_dim}
    return OpCase(
        op="attend_rows",
        views={role: array(i, sum(lengths), width) for i, (role, width) in enumerate(cols.items())},
        weights=weights,
        attrs={"n_heads": n_heads, "n_kv_heads": n_kv_heads, "scale": 0.2, **how},
        **places(lengths),
    )


def places(lengths: Sequence[int]) -> dict[str, Any]:
    return {"lengths": lengths, "positions": [i for n in lengths for i in range(n)]}


def answer_cases() -> Iterator[OpCase]:
    for kind in ("mean", "cls", "last"):
        pooled = {"y": empty(4, 300), "x": array(9, sum(LENGTHS), 300)}
        yield OpCase(op="pool", views=pooled, attrs={"kind": kind}, **places(LENGTHS))
    broken = array(10, 4, 300)
    broken[2, 299] = np.nan
    yield OpCase(op="emit", views={"x": broken})
    yield OpCase(op="emit", views={"x": array(11, 3, 7)})
