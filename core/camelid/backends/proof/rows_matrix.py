"""Rows of ops with a weight matrix, for each weight type, and of the router of experts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from camelid.backends.common.op_runner import F32, Quantized
from camelid.backends.proof.inputs import CaseRow, matrix, normal, row
from camelid.formats.quants import quant
from camelid.plan.op_rows_fused import deferred_cols
from camelid.plan.weights import LoadOp

OPS = ("linear", "linear_glu", "linear_experts", "linear_heads", "embed", "embed_position")
# (rows, columns in, columns out): few outputs, many rows, one row of a long matrix. Columns in are multiples
# of 32, and are rounded up to whole blocks of the type.
SHAPES = ((1, 256, 256), (9, 64, 6), (17, 768, 130), (1, 2048, 3))
EXPERTS = ((1, 4, 2, 64, 96), (9, 3, 3, 256, 6), (3, 16, 1, 64, 130))  # rows, experts, used, in, out


def typed_rows(weight_type: str) -> Iterator[CaseRow]:
    """All rows with a matrix of this type."""
    yield from linear_rows(weight_type)
    yield from expert_rows(weight_type)
    yield from table_rows(weight_type)


def whole(weight_type: str, n: int) -> int:
    """`n` columns, rounded up to whole blocks of the type."""
    block = quant(weight_type).block
    return -(-n // block) * block


def linear_rows(weight_type: str) -> Iterator[CaseRow]:
    """A single matrix, a joined matrix of gate and up, and one matrix per head."""
    for n, n_cols, n_out in SHAPES:
        n_in = whole(weight_type, n_cols)
        views: dict[str, Any] = {"y": (n, n_out), "x": (n, n_in)}
        yield row("linear", **views, weight=(weight_type, n_out, n_in))
        yield row("linear_glu", **views, weight=(weight_type, 2 * n_out, n_in), act="silu")
    n_in = whole(weight_type, 64)
    yield row("linear", y=(9, 130), x=(9, n_in), weight=(weight_type, 130, n_in), bias=(130,))
    for n_heads, beyond in ((3, 0), (2, 8)):
        views: dict[str, Any] = {"y": (2, n_heads * (20 + beyond)), "x": (2, n_heads * (n_in + beyond))}
        yield row("linear_heads", **views, weight=(weight_type, n_heads, 20, n_in))


def expert_rows(weight_type: str) -> Iterator[CaseRow]:
    """Experts with one row of x for all slots, and with one row per slot."""
    for n, n_experts, n_used, n_cols, n_out in EXPERTS:
        n_in = whole(weight_type, n_cols)
        weight = (weight_type, n_experts, n_out, n_in)
        for cols in dict.fromkeys((n_in, n_used * n_in)):
            yield row("linear_experts", y=(n, n_used * n_out), x=(n, cols), ids=chosen(n, n_experts, n_used),
                      weight=weight, bias=(n_experts, n_out))  # fmt: skip


def chosen(n: int, n_experts: int, n_used: int) -> F32:  # [n, used]
    """Expert ids, different in each row."""
    order = np.argsort(normal("experts", n, n_experts), axis=1)
    return order[:, :n_used].astype(np.float32)


def table_rows(weight_type: str) -> Iterator[CaseRow]:
    """Lookups of rows by token id and by position."""
    n_in = whole(weight_type, 256)
    ids = [0, 39, 7, 7, 21]
    yield row("embed", y=(5, n_in), weight=(weight_type, 40, n_in), token_ids=ids, scale=16.0)
    yield row("embed_position", x=(3, n_in), weight=(weight_type, 20, n_in), positions=[4, 19, 0])


def rows() -> Iterator[CaseRow]:
    """Rows without a matrix, or with one fixed weight type."""
    yield from router_rows()
    yield from near_rows()
    for n, n_used, cols in ((3, 4, 100), (1, 1, 8), (2, 8, 64)):
        yield row("combine", y=(n, cols), x=(n, n_used * cols), probs=(n, n_used))
    for n, ids in (
        (3, [3, 9, -1]),
        (300, [i % 40 for i in range(300)]),
    ):  # an id of the ring; more ids than it
        yield row("embed", y=(n, 32), weight=("f32", 40, 32), token_ids=ids,
                  positions=range(125, 125 + n), history=[i * 7 % 40 for i in range(130)])  # fmt: skip
    for act in ("gelu", "swiglu_oai"):
        yield row("linear_glu", y=(2, 6), x=(2, 64), weight=("f32", 12, 64), act=act)
    yield from fused_rows()
    for weight in loaded():
        yield row("linear", y=(3, 24), x=(3, 16), weight=weight)


def fused_rows() -> Iterator[CaseRow]:
    """Products that add to the residual stream, and that divide by a deferred norm."""
    for weight_type, n, n_in, n_out in (("f32", 1, 64, 64), ("q8_0", 9, 256, 144)):
        weight = (weight_type, n_out, n_in)
        added: dict[str, Any] = {"y": (n, n_out), "x": (n, n_in), "weight": weight, "bias": (n_out,)}
        yield row("linear_add_norm", **added, z=(n, deferred_cols(n_out)), gain=(n_out,), scale=0.22)
        yield row("linear_add", **added)
        x = np.hstack([normal("values", n, n_in), normal("squares", n, n_in // 4) ** 2])
        yield row("norm_linear", **{**added, "x": x}, eps=1e-5)
        yield row("norm_linear_glu", y=(n, n_out // 2), x=x, weight=weight, act="silu", eps=0.1)
        yield from fused_expert_rows(weight_type)


def fused_expert_rows(weight_type: str) -> Iterator[CaseRow]:
    """Gated products of experts, and their weighted sum."""
    for n, n_experts, n_used, n_in, n_out in EXPERTS:
        weight = (weight_type, n_experts, n_out, whole(weight_type, n_in))
        given: dict[str, Any] = {"ids": chosen(n, n_experts, n_used), "weight": weight}
        x, bias = (n, weight[-1]), (n_experts, n_out)
        yield row("linear_experts_glu", y=(n, n_used * n_out), x=x, **given, up_weight=weight, bias=bias,
                  up_bias=bias, act="silu")  # fmt: skip
        slots: dict[str, Any] = {"x": (n, n_used * weight[-1]), "probs": (n, n_used)}
        yield row("linear_experts_sum", y=(n, n_out), **slots, **given)


def near_rows() -> Iterator[CaseRow]:
    """The sparse mixer, with logits on either side of the bound of 2 %, positive and negative."""
    for mean in (2.0, -2.0):
        logits = np.float32(mean) + normal("near", 5, 12, scale=0.015)
        yield _router(logits, 2, "sparsemixer")


def router_rows() -> Iterator[CaseRow]:
    """The router: each gate, few and many experts, ties, a bias for the choice only, groups of experts."""
    for gate in ("softmax", "sigmoid", "topk_softmax"):
        for n, n_experts, n_used in ((5, 8, 8), (1, 4, 2), (3, 130, 6), (2, 300, 64)):
            yield _router(normal("logits", n, n_experts, scale=2.0), n_used, gate, normalize=1, scale=2.5)
        bias = np.repeat(np.array([0.0, 3.0, -3.0, 0.5], np.float32), 4)
        yield _router(normal("biased", 4, 16), 5, gate, bias=bias)
        tied = np.zeros((2, 70), np.float32)  # ties: the lowest ids are chosen
        tied[1, [3, 64, 69]] = 1.0
        yield _router(tied, 7, gate)
    yield _router(normal("gained", 4, 16), 5, "softmax", normalize=1, gain=normal("gain", 16))
    yield _router(normal("groups", 3, 32), 4, "sigmoid", n_groups=8, n_groups_used=3)


def _router(logits: F32, n_used: int, gate: str, **more: Any) -> CaseRow:
    shape = (len(logits), n_used)
    return row("router", ids=shape, probs=shape, logits=logits, gate=gate, **more)


def loaded() -> Iterator[Quantized]:
    """Matrices with load ops."""
    for stored in ("f32", "f16", "bf16"):
        raw = matrix(stored, 24, 16).raw
        yield Quantized("f32", (24, 16), raw, (LoadOp("cast", (stored,)), LoadOp("transpose", (16, 24))))
        yield Quantized(stored, (24, 16), raw, (LoadOp("permute_rows", (3, 8)),))
        more = matrix(stored, 40, 16).raw
        yield Quantized(stored, (24, 16), more, (LoadOp("rows", (5, 24, 40)),))
