"""Joins the query, key and value of a layer with their rotation and the write to the KV cache.

`linear; rope; kv_write` becomes `qkv`, and `norm_linear; rope; kv_write` becomes `norm_qkv`.
"""

from __future__ import annotations

from camelid.plan.dtypes import F32
from camelid.plan.op_rows_fused import QKV
from camelid.plan.ops import make_op
from camelid.plan.plan import Op

Ops = tuple[Op, ...]


def fuse_qkv(ops: Ops, _: int) -> Ops:
    """Replaces a joined linear map, the rotation of its first columns, and the write of its last columns."""
    out: list[Op] = []
    for op in ops:
        if op.name == "kv_write" and len(out) > 1 and _is_qkv(out[-2], out[-1], op):
            rope, linear = out.pop(), out.pop()
            out.append(_qkv(linear, rope, op))
        else:
            out.append(op)
    return tuple(out)


def _is_qkv(linear: Op, rope: Op, kv_write: Op) -> bool:
    """True if all rotated columns, then the values, are the columns of the map."""
    if linear.name not in QKV.values() or rope.name != "rope" or not kv_write.has("v"):
        return False
    y, x, k, v = linear.view("y"), rope.view("x"), kv_write.view("k"), kv_write.view("v")
    buffers = {view.buffer for view in (y, x, k, v)}
    is_exact = {y.dtype, linear.view("x").dtype} == {F32}
    ends = (x.offset + x.cols, v.offset + v.cols)
    is_cut = x.offset == 0 < k.offset and k.offset + k.cols == v.offset
    return is_exact and len(buffers) == 1 and is_cut and ends == (v.offset, y.cols)


def _qkv(linear: Op, rope: Op, kv_write: Op) -> Op:
    name = next(name for name, parts in QKV.items() if parts == linear.name)
    operands = {**dict(linear.operands), "fine": rope.weight("fine"), "coarse": rope.weight("coarse")}
    cols = {f"{role}_cols": kv_write.view(role).cols for role in ("k", "v")}
    attrs = {**dict(linear.attrs), **dict(rope.attrs), **cols}
    return make_op(name, {**operands, "state": kv_write.state("state")}, attrs)


def qkv_parts(op: Op) -> Ops:
    """The ops that a `qkv` or `norm_qkv` consists of."""
    y, tables, attrs = op.view("y"), ("fine", "coarse"), dict(op.attrs)
    k_cols, v_cols = op.integer("k_cols"), op.integer("v_cols")
    v = y.slice(y.cols - v_cols, v_cols)
    k = y.slice(y.cols - v_cols - k_cols, k_cols)
    eps = {"eps": attrs["eps"]} if "eps" in attrs else {}
    product = {role: operand for role, operand in op.operands if role not in (*tables, "state")}
    turned = {"x": y.slice(0, y.cols - v_cols), **{role: op.weight(role) for role in tables}}
    angles = {name: attrs[name] for name in ("head_dim", "dim", "style", "offset")}
    return (
        make_op(QKV[op.name], product, eps),
        make_op("rope", turned, angles),
        make_op("kv_write", {"k": k, "v": v, "state": op.state("state")}, {}),
    )
