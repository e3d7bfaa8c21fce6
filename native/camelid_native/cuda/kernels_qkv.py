"""Kernel rows of queries, keys and values with their rotation and the write to the KV cache."""

from __future__ import annotations

from camelid.plan.op_rows_fused import QUAD
from camelid.plan.plan import Op, Plan
from camelid.plan.qkv import qkv_halves, qkv_parts
from camelid_native.cuda.kernel import Context, Kernel, OpKernels
from camelid_native.cuda.kernels_matrix import (
    THREADS,
    codec,
    norm_scale,
    one,
    product_grid,
    product_values,
    quantize,
    tokens_macro,
)
from camelid_native.cuda.kernels_state import kv_header, refuses_type, spec_of, turn_values
from camelid_native.cuda.signature import Values

FLOATS = ("f32", "f16")  # cache types whose values are stored one by one


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


def _row(*attrs: str, before: tuple[Kernel, ...] = ()) -> OpKernels:
    names = ("k_cols", "v_cols", "head_dim", "dim", "offset", "style", *attrs)
    kernel = Kernel("qkv", product_grid, _values, headers=_headers, defines=tokens_macro)
    return OpKernels((quantize(one), *before, kernel), names, refuses=refuses_type, lower=_lower)


KERNELS: dict[str, OpKernels] = {"qkv": _row(), "norm_qkv": _row("eps", before=(norm_scale(THREADS),))}
