"""Rewrites that fold sums and norms of the residual stream into the linear maps on both sides.

`linear; add` becomes `linear_add`. An RMS norm behind it is deferred (`op_rows_fused.py`) if only linear maps
read it: `linear; add_norm` becomes `linear_add_norm`, and its readers become `norm_linear` or
`norm_linear_glu`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace

from camelid.plan.dtypes import F32
from camelid.plan.op_rows_fused import QUAD, deferred_cols
from camelid.plan.ops import make_op
from camelid.plan.plan import Buffer, Op, Operand, whole

Ops = tuple[Op, ...]
Uses = dict[Buffer, list[Op]]  # the ops with a view of a buffer
READERS = {"linear": "norm_linear", "linear_glu": "norm_linear_glu"}


def fuse_linear_add(ops: Ops, _: int) -> Ops:
    """Replaces `linear; add` by `linear_add`, where only the sum reads the linear map's output."""
    out, uses = list[Op](), uses_of(ops)
    for op in ops:
        if op.name == "add" and out and _is_summand(out[-1], op, uses):
            out[-1] = _linear_add(out[-1], op)
        else:
            out.append(op)
    return tuple(out)


def uses_of(ops: Ops) -> Uses:
    """The ops that have a view of a buffer, by buffer."""
    uses: Uses = {}
    for op in ops:
        for buffer in dict.fromkeys(view.buffer for _, view in op.views()):
            uses.setdefault(buffer, []).append(op)
    return uses


def _is_summand(linear: Op, add: Op, uses: Uses) -> bool:
    """True if `linear` makes r of `add`, which no other op has, and does not read the sum's own buffer."""
    r = add.view("r")
    if linear.name != "linear" or linear.view("y") != r:
        return False
    return linear.view("x").buffer != add.view("x").buffer and len(uses[r.buffer]) == 2


def _linear_add(linear: Op, add: Op, name: str = "linear_add", **more: Operand) -> Op:
    operands = {role: operand for role, operand in linear.operands if role != "y"}
    return make_op(name, {**operands, "y": add.view("x"), **more}, {"scale": add.number("scale")})


def defer_norms(ops: Ops, _: int) -> Ops:
    """Replaces `linear; add_norm` by `linear_add_norm`, where only linear maps read the norm."""
    out, uses = list[Op](), uses_of(ops)
    norms: dict[Buffer, tuple[Buffer, float]] = {}  # a norm's buffer -> that of its deferred norm, and eps
    for op in ops:
        if op.name == "add_norm" and out and _can_defer(out[-1], op, uses):
            norm = op.view("y").buffer
            norms |= {old: (_deferred(old), op.number("eps")) for old in (norm, *_gathers(norm, uses))}
            out[-1] = _linear_add(
                out[-1], op, "linear_add_norm", z=whole(norms[norm][0]), gain=op.weight("gain")
            )
        else:
            out.append(_on_deferred(op, norms))
    return tuple(out)


def _can_defer(linear: Op, norm: Op, uses: Uses) -> bool:
    y = norm.view("y")
    if y.cols % (QUAD * QUAD) or y.cols != y.buffer.cols or {y.dtype, norm.view("x").dtype} != {F32}:
        return False
    if not _is_summand(linear, norm, uses):
        return False
    known = {*READERS, "gather_rows"}
    gathered = all(_is_read_by(READERS, rows, uses) for rows in _gathers(y.buffer, uses))
    return gathered and _is_read_by(known, y.buffer, uses)


def _is_read_by(names: Collection[str], buffer: Buffer, uses: Uses) -> bool:
    """True if all readers have these names and read whole rows as x."""
    return all(op.name in names and op.view("x") == whole(buffer) for op in _readers(buffer, uses))


def _readers(buffer: Buffer, uses: Uses) -> Iterator[Op]:
    for op in uses[buffer]:
        if any(role != "y" and view.buffer == buffer for role, view in op.views()):
            yield op


def _gathers(norm: Buffer, uses: Uses) -> list[Buffer]:
    """Buffers of gathered rows of a norm."""
    return [op.view("y").buffer for op in _readers(norm, uses) if op.name == "gather_rows"]


def _deferred(norm: Buffer) -> Buffer:
    return replace(norm, cols=deferred_cols(norm.cols))


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
