"""Joins the query, key and value of a layer with their rotation and the write to the KV cache.

`linear; rope; kv_write` becomes `qkv`, and `norm_linear; rope; kv_write` becomes `norm_qkv`. The value may
have a linear map of its own behind the rotation: mixed files store its weight in another type.
"""

from __future__ import annotations

from dataclasses import replace

from camelid.plan.dtypes import F32
from camelid.plan.join import placed
from camelid.plan.op_rows_fused import QKV
from camelid.plan.ops import make_op
from camelid.plan.plan import Attr, Buffer, Op, Operand, View, whole

Ops = tuple[Op, ...]
TABLES = ("fine", "coarse")
GAINS = ("q_gain", "k_gain")
ANGLES = ("head_dim", "dim", "style", "offset")


def fuse_qkv(ops: Ops, _: int) -> Ops:
    """Replaces a linear map, the rotation of its first columns, and the write of its last columns."""
    out, places = list[Op](), dict[str, View]()
    for op in ops:
        if op.name == "kv_write" and (linears := _linears(out, op)):
            rope = out[-len(linears)]
            del out[-len(linears) - 1 :]
            places |= (own := side_by_side([linear.view("y").buffer for linear in linears]))
            out.append(_qkv(linears, rope, op, own))
        else:
            out.append(op)
    return tuple(placed(op, places) for op in out)


def _linears(out: list[Op], kv_write: Op) -> list[Op]:
    """The map, or the two, whose rotated columns and values these last ops write; none if they do not fit."""
    if len(out) > 1 and _is_qkv(out[-2], out[-1], kv_write):
        return [out[-2]]
    if len(out) > 2 and _is_mixed(out[-3], out[-2], out[-1], kv_write):
        return [out[-3], out[-1]]
    return []


def _is_qkv(linear: Op, rope: Op, kv_write: Op) -> bool:
    """True if all rotated columns, then the values, are the columns of the map."""
    if not _are_names(linear, rope, kv_write):
        return False
    y, x, k, v = linear.view("y"), rope.view("x"), kv_write.view("k"), kv_write.view("v")
    buffers = {view.buffer for view in (y, x, k, v)}
    ends = (x.offset + x.cols, v.offset + v.cols)
    is_cut = x.offset == 0 < k.offset and k.offset + k.cols == v.offset
    return _is_exact(linear) and len(buffers) == 1 and is_cut and ends == (v.offset, y.cols)


def _is_mixed(linear: Op, rope: Op, values: Op, kv_write: Op) -> bool:
    """True if the first map has all rotated columns and no others, and the second one the values."""
    if not _are_names(linear, rope, kv_write) or (values.name, values.attrs) != (linear.name, linear.attrs):
        return False
    y, k = linear.view("y"), kv_write.view("k")
    same_x = values.view("x") == linear.view("x") and _is_exact(linear) and _is_exact(values)
    fills = y == whole(y.buffer) == rope.view("x") and kv_write.view("v") == values.view("y")
    is_last = k.buffer == y.buffer and k.offset + k.cols == y.cols
    return same_x and fills and is_last and values.view("y") == whole(values.view("y").buffer)


def _are_names(linear: Op, rope: Op, kv_write: Op) -> bool:
    return linear.name in QKV.values() and turns_text(rope) and kv_write.has("v")


def turns_text(op: Op) -> bool:
    """True for a rotation by the first position channel, the only one of text."""
    return op.name == "rope" and op.integer("channel") == 0


def angles_of(rope: Op) -> dict[str, Attr]:
    """The attributes that a fused op takes from a rotation."""
    return {name: value for name, value in rope.attrs if name in ANGLES}


def _is_exact(linear: Op) -> bool:
    return {linear.view("y").dtype, linear.view("x").dtype} == {F32}


def side_by_side(buffers: list[Buffer]) -> dict[str, View]:
    """Places of whole buffers in one, by buffer name; none for a buffer alone."""
    if len(buffers) == 1:
        return {}
    joined = replace(buffers[0], name="+".join(b.name for b in buffers), cols=sum(b.cols for b in buffers))
    starts = [sum(b.cols for b in buffers[:i]) for i in range(len(buffers))]
    return {b.name: View(joined, b.cols, at) for b, at in zip(buffers, starts, strict=True)}


def _qkv(linears: list[Op], rope: Op, kv_write: Op, places: dict[str, View]) -> Op:
    linear, *values = linears
    name = next(name for name, parts in QKV.items() if parts == linear.name)
    operands: dict[str, Operand] = dict(linear.operands)
    operands |= {role: rope.weight(role) for role in TABLES} | {"state": kv_write.state("state")}
    for own in values:
        operands["y"] = whole(places[own.view("y").buffer.name].buffer)
        operands |= {f"v_{role}": own.weight(role) for role in ("weight", "bias") if own.has(role)}
    cols = {f"{role}_cols": kv_write.view(role).cols for role in ("k", "v")}
    return make_op(name, operands, {**dict(linear.attrs), **angles_of(rope), **cols})


def qkv_parts(op: Op) -> Ops:
    """The ops that a `qkv` or `norm_qkv` consists of."""
    turned, k, v = cut(op, "y")
    states = (op.state(role) for role in ("state", "tail") if op.has(role))
    writes = (make_op("kv_write", {"k": k, "v": v, "state": state}, {}) for state in states)
    return (*_maps(op, turned, v), _norm_rope(op) if op.has("q_gain") else rope_of(op, turned), *writes)


def _norm_rope(op: Op) -> Op:
    """The norms and the rotation of an op with gains."""
    weights = {role: op.weight(role) for role in (*GAINS, *TABLES)}
    attrs = {name: value for name, value in op.attrs if name in (*ANGLES, "k_cols", "v_cols")}
    return make_op("norm_rope", {"x": op.view("y"), **weights}, {**attrs, "eps": op.number("head_eps")})


def rope_of(op: Op, x: View) -> Op:
    """The rotation of a view with the tables and attributes of an op that has them."""
    tables = {role: op.weight(role) for role in TABLES}
    return make_op("rope", {"x": x, **tables}, angles_of(op))


def cut(op: Op, role: str) -> tuple[View, View, View]:
    """Views of the rotated columns, of the keys, which are the last of these, and of the values."""
    view, k_cols, v_cols = op.view(role), op.integer("k_cols"), op.integer("v_cols")
    n = view.cols - v_cols
    return view.slice(0, n), view.slice(n - k_cols, k_cols), view.slice(n, v_cols)


def _maps(op: Op, turned: View, v: View) -> Ops:
    name, more = QKV[op.name], {"eps": op.number("eps")} if op.name == "norm_qkv" else {}
    halves = (("", turned), ("v_", v)) if op.has("v_weight") else (("", op.view("y")),)
    return tuple(make_op(name, {"y": y, "x": op.view("x"), **_weights(op, half)}, more) for half, y in halves)


def _weights(op: Op, half: str) -> dict[str, Operand]:
    return {role: op.weight(half + role) for role in ("weight", "bias") if op.has(half + role)}


def qkv_halves(op: Op) -> Ops:
    """A `qkv` with a weight of v as two: of the rotated columns, and of the values."""
    turned, _, v = cut(op, "y")
    shared = {role: operand for role, operand in op.operands if role in ("x", "state", "tail", *TABLES)}
    attrs, gains = dict(op.attrs), {role: op.weight(role) for role in GAINS if op.has(role)}
    return (
        make_op(op.name, {**shared, **gains, "y": turned, **_weights(op, "")}, {**attrs, "v_cols": 0}),
        make_op(op.name, {**shared, "y": v, **_weights(op, "v_")}, {**attrs, "k_cols": 0}),
    )
