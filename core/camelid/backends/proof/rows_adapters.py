"""Rows of adapters' ops: sequences with different slots, ranks below the capacity, and none."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from camelid.backends.common.op_runner import F32
from camelid.backends.proof.inputs import CaseRow, normal, row
from camelid.plan.op_rows_adapters import HEADER_FLOATS, slot_cols
from camelid.plan.op_rows_fused import QUAD, deferred_cols

# (rows of each sequence, columns in, columns out, capacity, rank of each slot, slot of each sequence)
SHAPES: tuple[tuple[tuple[int, ...], int, int, int, tuple[int, ...], tuple[int, ...]], ...] = (
    ((1,), 64, 96, 8, (8,), (1,)),
    ((1, 1, 1), 256, 130, 16, (16, 3), (2, 0, 1)),
    ((5, 1, 3), 768, 20, 16, (1, 16, 7), (3, 3, 1)),
    ((2, 33), 100, 68, 64, (64, 0), (1, 2)),
)


def rows() -> Iterator[CaseRow]:
    """Terms of matrices, of fused norms, of experts; the norm behind a term."""
    for lengths, n_in, n_out, most, ranks, slots in SHAPES:
        n = sum(lengths)
        facts: dict[str, Any] = {"lengths": lengths, "adapter_slots": slots, "tensor": 1, "rank": most}
        facts |= {"n_in": n_in, "y": (n, n_out), "x": (n, n_in)}
        yield row("low_rank", **facts, adapters=slots_of(ranks, most, n_in, n_out), scale=0.5)
    yield from _deferred_rows()
    yield from _expert_rows()
    for n, cols in ((1, 64), (5, 272)):
        yield row("defer_norm", z=(n, deferred_cols(cols)), y=(n, cols), gain=(cols,))


def _deferred_rows() -> Iterator[CaseRow]:
    n_in, x = 64, normal("low_rank.deferred", 4, 64)
    squares = (x * x).reshape(4, n_in // QUAD, QUAD).sum(axis=2)
    facts: dict[str, Any] = {"lengths": (3, 1), "adapter_slots": (1, 0), "tensor": 1, "rank": 4, "n_in": n_in}
    yield row(
        "low_rank", **facts, y=(4, 48), x=np.hstack([x, squares]), deferred=1, eps=1e-5,
        adapters=slots_of((3,), 4, n_in, 48),
    )  # fmt: skip


def _expert_rows() -> Iterator[CaseRow]:
    """Experts with one row of x for all slots, and with one row per slot."""
    n_experts, n_used, n_in, n_out, most = 5, 3, 64, 36, 8
    ids = np.argsort(normal("low_rank.experts", 6, n_experts), axis=1)[:, :n_used].astype(np.float32)
    facts: dict[str, Any] = {"lengths": (4, 2), "adapter_slots": (2, 1), "tensor": 1, "rank": most}
    facts |= {"n_in": n_in, "experts": n_experts, "ids": ids, "y": (6, n_used * n_out)}
    for cols in (n_in, n_used * n_in):
        yield row(
            "low_rank_experts", **facts, x=(6, cols), adapters=slots_of((8, 5), most, n_in, n_out, n_experts)
        )


def slots_of(ranks: Sequence[int], most: int, n_in: int, n_out: int, experts: int = 0) -> F32:
    """Random slots of these ranks; floats that no kernel may read are NaN."""
    floats = slot_cols(most, n_in, n_out, experts)
    slots = np.full((len(ranks), floats), np.nan, np.float32)
    for i, rank in enumerate(ranks):
        n, name = max(experts, 1), f"slot {i} {ranks} {most} {n_in} {n_out} {experts}"
        slots[i, :rank] = 1.0 + np.arange(rank) / 8
        slots[i, most] = rank
        a_at = HEADER_FLOATS + most
        b_at = a_at + n * most * n_in
        a = slots[i, a_at:b_at].reshape(n, most, n_in)
        b = slots[i, b_at : b_at + n * most * n_out].reshape(n, most, n_out)
        a[:, :rank] = normal(f"{name} a", n, rank, n_in, scale=n_in**-0.5)
        b[:, :rank] = normal(f"{name} b", n, rank, n_out)
    return slots
