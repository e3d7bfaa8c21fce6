"""Reference kernels of fused products and deferred norms (`plan/op_rows_fused.py`)."""

from __future__ import annotations

import numpy as np

from camelid.backends.reference.attention import op_kv_write
from camelid.backends.reference.basic import gated, op_linear, op_norm, op_rope
from camelid.backends.reference.frame import Frame
from camelid.backends.reference.rows import F64, row_sum
from camelid.plan.norm_rope import norm_rope_parts
from camelid.plan.op_rows_fused import QUAD
from camelid.plan.ops import make_op
from camelid.plan.plan import Op
from camelid.plan.qkv import cut, qkv_parts, rope_of


def op_linear_add(op: Op, f: Frame) -> None:
    r = f.store.multiply(op.weight("weight"), f.read(op.view("x")))  # [T, out]
    if op.has("bias"):
        r = r + f.store.vector(op.weight("bias"))
    f.write(op.view("y"), f.read(op.view("y")) + op.number("scale") * r)


def op_linear_add_norm(op: Op, f: Frame) -> None:
    op_linear_add(op, f)
    y = f.read(op.view("y"))
    squares = row_sum((y * y).reshape(len(y), y.shape[1] // QUAD, QUAD))[..., 0]  # [T, out / 4]
    f.write(op.view("z"), np.hstack([y * f.store.vector(op.weight("gain")), squares]))


def op_qkv(op: Op, f: Frame) -> None:
    for part in qkv_parts(op):
        QKV_PARTS[part.name](part, f)


op_norm_qkv = op_qkv


def op_norm_rope(op: Op, f: Frame) -> None:
    turned, k, _ = cut(op, "x")
    q = turned.slice(0, turned.cols - k.cols)
    for view, gain in ((q, "q_gain"), (k, "k_gain")):
        of_heads = {"eps": op.number("eps"), "size": op.integer("head_dim")}
        op_norm(make_op("norm", {"y": view, "x": view, "gain": op.weight(gain)}, of_heads), f)
    op_rope(rope_of(op, turned), f)


def op_norm_rope_write(op: Op, f: Frame) -> None:
    turn, kv_write = norm_rope_parts(op)
    op_norm_rope(turn, f)
    op_kv_write(kv_write, f)


def op_norm_linear(op: Op, f: Frame) -> None:
    y = _normed_product(op, f)
    f.write(op.view("y"), y + f.store.vector(op.weight("bias")) if op.has("bias") else y)


def op_norm_linear_glu(op: Op, f: Frame) -> None:
    f.write(op.view("y"), gated(op.word("act"), *np.split(_normed_product(op, f), 2, axis=1)))


def _normed_product(op: Op, f: Frame) -> F64:  # [T, out]
    weight, x = op.weight("weight"), f.read(op.view("x"))
    values, squares = np.split(x, [weight.cols], axis=1)
    mean = row_sum(np.ascontiguousarray(squares)) / weight.cols
    return f.store.multiply(weight, values) / np.sqrt(mean + op.number("eps"))


QKV_PARTS = {
    "linear": op_linear,
    "norm_linear": op_norm_linear,
    "rope": op_rope,
    "norm_rope": op_norm_rope,
    "kv_write": op_kv_write,
}
