"""Kernel rows of queries, keys and values with their rotation and the write to the KV cache."""

from __future__ import annotations

from camelid.plan.norm_rope import norm_rope_parts
from camelid.plan.op_rows_fused import QUAD
from camelid.plan.plan import Op, Plan
from camelid.plan.qkv import qkv_halves, qkv_parts
from camelid_native.cuda.device import Grid
from camelid_native.cuda.kernel import Context, Kernel, OpKernels, tiles
from camelid_native.cuda.kernels_matrix import (
    codec,
    one,
    product_grid,
    product_values,
    quantize,
    tokens_macro,
)
from camelid_native.cuda.kernels_state import kv_header, refuses_type, spec_of, turn_values
from camelid_native.cuda.signature import Values

FLOATS = ("f32", "f16")  # cache types whose values are stored one by one
KV_BLOCK = 32  # values of a block of the other types
HEADS = 4  # of a block of norm_rope


def _values(op: Op, c: Context) -> Values:
    cols = {name: op.integer(name) for name in ("k_cols", "v_cols")}
    return {**product_values(op, c, one), **turn_values(op), **cols}


def _headers(op: Op, c: Context) -> tuple[str, ...]:
    return (*codec(op, c), *kv_header(op, c))


def _lower(op: Op, plan: Plan) -> tuple[Op, ...]:
    """The op, one for each of two weight types, or its parts for blocks of the cache and for odd heads."""
    sizes = (op.integer(name) for name in ("head_dim", "dim", "offset", "v_cols"))
    if spec_of(op, plan).kv_type not in FLOATS or any(size % QUAD for size in sizes):
        return qkv_parts(op)
    return qkv_halves(op) if op.has("v_weight") else (op,)


def _row(*attrs: str) -> OpKernels:
    names = ("k_cols", "v_cols", "head_dim", "dim", "offset", "style", *attrs)
    kernel = Kernel("qkv", product_grid, _values, headers=_headers, defines=tokens_macro)
    return OpKernels((quantize(one), kernel), names, refuses=refuses_type, lower=_lower)


def _turned(op: Op) -> int:
    """Columns of queries and keys."""
    return op.view("x").cols - op.integer("v_cols")


def _head_values(op: Op, _: Context) -> Values:
    cols = {name: op.integer(name) for name in ("k_cols", "v_cols")}
    return {"turned": _turned(op), "eps": op.number("eps"), **cols, **turn_values(op)}


def _head_grid(op: Op, c: Context) -> Grid:
    return _units_grid(op, c, _turned(op))


def _write_grid(op: Op, c: Context) -> Grid:
    return _units_grid(op, c, op.view("x").cols)


def _units_grid(op: Op, c: Context, cols: int) -> Grid:
    """Blocks of heads of so many columns, and rows."""
    return (tiles(cols, HEADS * op.integer("head_dim")), c.rows(op, "x"), 1)


def _lower_write(op: Op, plan: Plan) -> tuple[Op, ...]:
    """The op, or its parts for heads that share a block of the cache."""
    is_whole = spec_of(op, plan).kv_type in FLOATS or op.integer("head_dim") % KV_BLOCK == 0
    return (op,) if is_whole else norm_rope_parts(op)


NORM_ROPE = Kernel("norm_rope", _head_grid, _head_values)
HEAD_ATTRS = ("k_cols", "v_cols", "head_dim", "dim", "offset", "style", "eps")

KERNELS: dict[str, OpKernels] = {
    "qkv": _row(),
    "norm_qkv": _row("eps"),
    "norm_rope": OpKernels((NORM_ROPE,), HEAD_ATTRS),
    "norm_rope_write": OpKernels(
        (Kernel("norm_rope_write", _write_grid, _head_values, headers=kv_header),),
        HEAD_ATTRS,
        refuses=refuses_type,
        lower=_lower_write,
    ),
}
