"""Rewrites that fold sums and norms of the residual stream into the linear maps on both sides.

`linear; add` becomes `linear_add`. An RMS norm behind it is deferred (`op_rows_fused.py`) if only linear maps
read it: `linear; add_norm` becomes `linear_add_norm`, and its readers become `norm_linear` or
`norm_linear_glu`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from camelid.plan.dtypes import F32
from camelid.plan.op_rows_fused import QUAD, deferred_cols
from camelid.plan.ops import make_op
from camelid.plan.plan import Buffer, Op, Operand, View, whole

Ops = tuple[Op, ...]
READERS = {"linear": "norm_linear", "linear_glu": "norm_linear_glu"}


def fuse_linear_add(ops: Ops, _: int) -> Ops:
    """Replaces `linear; add` by `linear_add`, where only the sum reads the linear map's output."""
    out: list[Op] = []
    for op in ops:
        if op.name == "add" and out and _is_summand(out[-1], op.view("r"), op.view("x"), ops):
            out[-1] = _linear_add(out[-1], op)
        else:
            out.append(op)
    return tuple(out)


def _is_summand(linear: Op, r: View, x: View, ops: Ops) -> bool:
    """True if `linear` makes r, which one op reads, and does not read the sum's own buffer."""
    if linear.name != "linear" or linear.view("y") != r or linear.view("x").buffer == x.buffer:
        return False
    return sum(r.buffer in _buffers(op) for op in ops) == 2


def _linear_add(linear: Op, add: Op, name: str = "linear_add", **more: Operand) -> Op:
    operands = {role: operand for role, operand in linear.operands if role != "y"}
    return make_op(name, {**operands, "y": add.view("x"), **more}, {"scale": add.number("scale")})


def defer_norms(ops: Ops, _: int) -> Ops:
    """Replaces `linear; add_norm` by `linear_add_norm`, where only linear maps read the norm."""
    out: list[Op] = []
    norms: dict[Buffer, tuple[Buffer, float]] = {}  # a norm's buffer -> that of its deferred norm, and eps
    for op in ops:
        if op.name == "add_norm" and out and _can_defer(out[-1], op, ops):
            buffers = _deferred(op.view("y").buffer, ops)
            norms |= {old: (new, op.number("eps")) for old, new in buffers.items()}
            z = whole(buffers[op.view("y").buffer])
            out[-1] = _linear_add(out[-1], op, "linear_add_norm", z=z, gain=op.weight("gain"))
        else:
            out.append(_on_deferred(op, norms))
    return tuple(out)


def _can_defer(linear: Op, norm: Op, ops: Ops) -> bool:
    y = norm.view("y")
    if y.cols % (QUAD * QUAD) or y.cols != y.buffer.cols or {y.dtype, norm.view("x").dtype} != {F32}:
        return False
    return _is_summand(linear, norm.view("r"), norm.view("x"), ops) and _only_linear_maps_read(y.buffer, ops)


def _only_linear_maps_read(norm: Buffer, ops: Ops) -> bool:
    """True if all readers of the buffer are linear maps, or gathers of rows that only linear maps read."""
    for op in _readers(norm, ops):
        if op.name == "gather_rows":
            y = op.view("y")
            if y.cols != y.buffer.cols or not _only_linear_maps_read(y.buffer, ops):
                return False
        elif op.name not in READERS or op.view("x") != whole(norm):
            return False
    return True


def _readers(buffer: Buffer, ops: Ops) -> Iterator[Op]:
    return (op for op in ops if any(role != "y" and view.buffer == buffer for role, view in op.views()))


def _deferred(norm: Buffer, ops: Ops) -> dict[Buffer, Buffer]:
    """Wider buffers for a norm and the gathers of its rows."""
    gathers = [op.view("y").buffer for op in _readers(norm, ops) if op.name == "gather_rows"]
    return {buffer: replace(buffer, cols=deferred_cols(buffer.cols)) for buffer in (norm, *gathers)}


def _on_deferred(op: Op, norms: Mapping[Buffer, tuple[Buffer, float]]) -> Op:
    """The op with deferred norms in place of norms."""
    if not any(view.buffer in norms for _, view in op.views()):
        return op
    wide = {role: whole(norms[v.buffer][0]) if v.buffer in norms else v for role, v in op.views()}
    operands: dict[str, Operand] = {**dict(op.operands), **wide}
    if op.name not in READERS:
        return make_op(op.name, operands, dict(op.attrs))
    eps = norms[op.view("x").buffer][1]
    return make_op(READERS[op.name], operands, {**dict(op.attrs), "eps": eps})


def _buffers(op: Op) -> Sequence[Buffer]:
    return [view.buffer for _, view in op.views()]
