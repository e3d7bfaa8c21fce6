"""Kernel rows of queries, keys and values with their rotation and the write to the KV cache."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from camelid.plan.norm_rope import norm_rope_parts
from camelid.plan.op_rows_fused import QUAD
from camelid.plan.plan import Op, Plan
from camelid.plan.qkv import qkv_halves, qkv_parts
from camelid_native.cuda.compiler import Space
from camelid_native.cuda.device import Grid
from camelid_native.cuda.kernel import Context, Kernel, OpKernels, tiles
from camelid_native.cuda.kernels_matrix import (
    LINEAR,
    NORM_SCALE,
    ROWS,
    TOKENS,
    block_macros,
    codec,
    one,
    product_grid,
    product_values,
    quantize,
)
from camelid_native.cuda.kernels_state import kv_header, refuses_type, spec_of, turn_values
from camelid_native.cuda.signature import Values
from camelid_native.cuda.types import EXACT_TYPES

FLOATS = ("f32", "f16")  # cache types whose values are stored one by one
KV_BLOCK = 32  # values of a block of the other types
HEADS = 4  # of a block of norm_rope
CUT = ("k_cols", "v_cols", "head_dim", "dim", "offset", "style")


def _cols(op: Op) -> Values:
    return {name: op.integer(name) for name in ("k_cols", "v_cols")}


def _values(op: Op, c: Context) -> Values:
    return {**product_values(op, c, one), **_write_values(op, c)}


def _mixed_headers(op: Op, c: Context) -> tuple[str, ...]:
    """Headers that the products of both weights share."""
    return ("bits", "deferred", "input", "turn", *kv_header(op, c))


def _spaces(task: str) -> Callable[[Op, Context], tuple[Space, ...]]:
    """A namespace for each weight, with the products of its type."""

    def spaces(op: Op, _: Context) -> tuple[Space, ...]:
        roles = {"first": "weight", "second": "v_weight"}
        return tuple((name, (f"codec_{op.weight(role).type}", "codes", task)) for name, role in roles.items())

    return spaces


def _headers(op: Op, c: Context) -> tuple[str, ...]:
    return (*codec(op, c), *kv_header(op, c))


def _is_by_heads(op: Op, plan: Plan) -> bool:
    """True if more than one column at a time is needed: norms of heads, blocks of the cache; or a tail."""
    return op.has("q_gain") or op.has("tail") or spec_of(op, plan).kv_type not in FLOATS


def _fits_heads(op: Op, plan: Plan) -> bool:
    """True if no two heads share the rows of a block or a block of the cache."""
    head_dim, is_float = op.integer("head_dim"), spec_of(op, plan).kv_type in FLOATS
    return head_dim % (ROWS if is_float else KV_BLOCK) == op.integer("v_cols") % head_dim == 0


def _lower(op: Op, plan: Plan) -> tuple[Op, ...]:
    """The op, one for each of two weight types, or its parts for odd heads."""
    sizes = (op.integer(name) for name in ("head_dim", "dim", "offset", "v_cols"))
    fits = _fits_heads(op, plan) if _is_by_heads(op, plan) else not any(size % QUAD for size in sizes)
    if not fits:
        return qkv_parts(op)
    return qkv_halves(op) if op.has("v_weight") and not _fits_launch(op, plan) else (op,)


def _fits_launch(op: Op, plan: Plan) -> bool:
    """True if weights of two types fit one launch: rounded, for few rows, without a block of both."""
    types = {op.weight(role).type for role in ("weight", "v_weight")}
    is_few = plan.rows[op.view("y").rows] <= TOKENS
    return is_few and not types & EXACT_TYPES and _turned(op, "y") % ROWS == 0


def _counters(op: Op, c: Context) -> int:
    """One for each head and block of rows of x."""
    return op.view("y").cols // op.integer("head_dim") * product_grid(op, c)[1]


def _is_many(op: Op, c: Context) -> bool:
    """True for rows whose heads fill a GPU in a launch of their own, and would wait for a last block."""
    return c.rows(op, "y") > TOKENS


def _is_at_once(op: Op, c: Context) -> bool:
    return not _is_by_heads(op, c.plan) and not op.has("v_weight")


def _is_by_last_block(op: Op, c: Context) -> bool:
    return _is_by_heads(op, c.plan) and not _is_many(op, c) and not op.has("v_weight")


def _is_mixed_at_once(op: Op, c: Context) -> bool:
    return op.has("v_weight") and not _is_by_heads(op, c.plan)


def _is_mixed_by_last_block(op: Op, c: Context) -> bool:
    return op.has("v_weight") and _is_by_heads(op, c.plan)


def _is_apart(op: Op, c: Context) -> bool:
    return _is_by_heads(op, c.plan) and _is_many(op, c)


def _refuses(op: Op, plan: Plan) -> str:
    tail = spec_of(op, plan, "tail") if op.has("tail") else None
    if tail and tail.kv_type != "f16":
        return f"a tail {tail.name!r} of type {tail.kv_type}; f16 is required"
    return refuses_type(op, plan)


def _turned(op: Op, role: str) -> int:
    """Columns of queries and keys."""
    return op.view(role).cols - op.integer("v_cols")


def _head_values(op: Op, _: Context) -> Values:
    return {"turned": _turned(op, "x"), "eps": op.number("eps"), **_cols(op), **turn_values(op)}


def _write_values(op: Op, _: Context) -> Values:
    return {"turned": _turned(op, "y"), "head_eps": op.number("head_eps"), **_cols(op), **turn_values(op)}


def _heads_grid(role: str, cols: Callable[[Op], int]) -> Callable[[Op, Context], Grid]:
    """Blocks of the heads of so many columns, and rows."""
    return lambda op, c: (tiles(cols(op), HEADS * op.integer("head_dim")), c.rows(op, role), 1)


def _lower_write(op: Op, plan: Plan) -> tuple[Op, ...]:
    """The op, or its parts for heads that share a block of the cache."""
    is_whole = spec_of(op, plan).kv_type in FLOATS or op.integer("head_dim") % KV_BLOCK == 0
    return (op,) if is_whole else norm_rope_parts(op)


QKV = Kernel("qkv", product_grid, _values, headers=_headers, defines=block_macros, when=_is_at_once)
QKV_HEADS = replace(QKV, file="qkv_heads", counters=_counters, when=_is_by_last_block)
QKV_MIXED = replace(
    QKV, file="qkv_mixed", headers=_mixed_headers, spaces=_spaces("qkv"), when=_is_mixed_at_once
)
QKV_HEADS_MIXED = replace(
    QKV_MIXED,
    file="qkv_heads_mixed",
    spaces=_spaces("linear"),
    counters=_counters,
    when=_is_mixed_by_last_block,
)
NORM_ROPE = Kernel("norm_rope", _heads_grid("x", lambda op: _turned(op, "x")), _head_values)
NORM_ROPE_WRITE = Kernel(
    "norm_rope_write", _heads_grid("x", lambda op: op.view("x").cols), _head_values, headers=kv_header
)
QKV_WRITE = replace(
    NORM_ROPE_WRITE,
    name="qkv_write",
    grid=_heads_grid("y", lambda op: op.view("y").cols),
    values=_write_values,
    when=_is_apart,
)


def _row(*attrs: str, before: tuple[Kernel, ...] = ()) -> OpKernels:
    mixed = (QKV_MIXED, QKV_HEADS_MIXED)
    launches = (quantize(one), *before, QKV, QKV_HEADS, *mixed, replace(LINEAR, when=_is_apart), QKV_WRITE)
    return OpKernels(launches, (*CUT, "head_eps", *attrs), refuses=_refuses, lower=_lower)


KERNELS: dict[str, OpKernels] = {
    "qkv": _row(),
    "norm_qkv": _row("eps", before=(NORM_SCALE,)),
    "norm_rope": OpKernels((NORM_ROPE,), (*CUT, "eps")),
    "norm_rope_write": OpKernels((NORM_ROPE_WRITE,), (*CUT, "eps"), refuses=refuses_type, lower=_lower_write),
}
