"""Rewrites that join ops of equal kind: linear maps of one input, and rotations of neighbouring columns.

A row's values keep their meaning and the order of their sums. Joined outputs lie side by side in one buffer.
Outputs that one op binds are not joined if the op writes a view: WebGPU forbids to bind a range twice then.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, permutations

from camelid.plan.ops import OPS, make_op
from camelid.plan.plan import Buffer, Op, Operand, StateRef, View
from camelid.plan.weights import Weight, can_concat, concat_rows

Ops = tuple[Op, ...]
Pair = tuple[Buffer, Buffer]
ALIGNED = 4  # columns; kernels read four floats at a time


def join_linears(ops: Ops, most_bytes: int) -> Ops:
    """Replaces linear maps of one view by one map with the rows of all weights.

    The later maps move up to the first.
    """
    out, moved, places = list[Op](), set[int](), dict[str, View]()
    apart = set(chain.from_iterable(map(_bound_together, ops)))
    for i, op in enumerate(ops):
        if i in moved:
            continue
        group = [i]
        for j in _partners(ops, i, moved):
            if _goes_with([ops[k] for k in group], ops[j], apart, most_bytes):
                group.append(j)
        moved.update(group)
        out.append(_joined([ops[j] for j in group], places) if len(group) > 1 else op)
    return tuple(placed(op, places) for op in out)


def _bound_together(op: Op) -> Iterator[Pair]:
    """Pairs of buffers that an op with a written view has."""
    if next(_written(op), None):
        yield from permutations({view.buffer for _, view in op.views()}, 2)


def _partners(ops: Ops, first: int, moved: Collection[int]) -> Iterator[int]:
    """Indices of the later maps of the first one's input, up to an op that writes the input or has state."""
    if not _is_plain(ops[first]):
        return
    x, seen = ops[first].view("x").buffer, {ops[first].view("y").buffer}
    for j in range(first + 1, len(ops)):
        op = ops[j]
        if j not in moved and _fits(op, ops[first]) and op.view("y").buffer not in seen:
            yield j
        if x in _written(op) or any(isinstance(operand, StateRef) for _, operand in op.operands):
            return
        seen.update(view.buffer for _, view in op.views())


def _goes_with(group: Sequence[Op], op: Op, apart: Collection[Pair], most_bytes: int) -> bool:
    """True if the op's output may lie beside the group's, and its weight fits beside theirs."""
    n_bytes = sum(one.weight("weight").n_bytes for one in (*group, op))
    return n_bytes <= most_bytes and not any(
        (one.view("y").buffer, op.view("y").buffer) in apart for one in group
    )


def _is_plain(op: Op) -> bool:
    """True for a linear map that fills its output's buffer, with weights whose rows can follow others."""
    if op.name != "linear":
        return False
    y = op.view("y")
    return y.cols == y.buffer.cols and not y.cols % ALIGNED and all(map(can_concat, _weights(op)))


def _weights(op: Op) -> list[Weight]:
    return [op.weight(role) for role in ("weight", "bias") if op.has(role)]


def _fits(op: Op, first: Op) -> bool:
    """True if both maps read one view, with weights of one type, and both have a bias or none."""
    if not _is_plain(op) or op.view("x") != first.view("x") or op.has("bias") != first.has("bias"):
        return False
    pairs = zip(_weights(op), _weights(first), strict=True)
    alike = all(a.type == b.type and can_concat(a, b) for a, b in pairs)
    y, other = op.view("y").buffer, first.view("y").buffer
    return alike and (y.rows, y.dtype) == (other.rows, other.dtype)


def _written(op: Op) -> Iterator[Buffer]:
    roles = (role.rstrip("?") for role in (*OPS[op.name].writes, *OPS[op.name].updates))
    yield from (op.view(role).buffer for role in roles if op.has(role))


def _joined(ops: Sequence[Op], places: dict[str, View]) -> Op:
    """One map for all, whose outputs' columns go to `places` by buffer name."""
    outputs = [op.view("y").buffer for op in ops]
    names = "+".join(buffer.name for buffer in outputs)
    buffer = replace(outputs[0], name=names, cols=sum(b.cols for b in outputs))
    at = 0
    for own in outputs:
        places[own.name] = View(buffer, own.cols, at)
        at += own.cols
    operands: dict[str, Operand] = {"y": View(buffer, buffer.cols), "x": ops[0].view("x")}
    roles = ("weight", "bias") if ops[0].has("bias") else ("weight",)
    for role in roles:
        weights = [op.weight(role) for op in ops]
        operands[role] = concat_rows("+".join(weight.name for weight in weights), *weights)
    return make_op("linear", operands, {})


def placed(op: Op, places: Mapping[str, View]) -> Op:
    """The op with views of the joined buffers in place of those in `places`, by buffer name."""
    moved = ((role, place(x, places) if isinstance(x, View) else x) for role, x in op.operands)
    return replace(op, operands=tuple(moved))


def place(view: View, places: Mapping[str, View]) -> View:
    """The view, or its columns of a joined buffer."""
    if view.buffer.name not in places:
        return view
    to = places[view.buffer.name]
    return View(to.buffer, view.cols, to.offset + view.offset)


def join_ropes(ops: Ops, _: int) -> Ops:
    """Replaces rotations of neighbouring columns by the same angles by one rotation of all heads."""
    out: list[Op] = []
    for op in ops:
        if out and _continues(op, out[-1]):
            x = out[-1].view("x")
            view = View(x.buffer, x.cols + op.view("x").cols, x.offset)
            out[-1] = make_op("rope", {**dict(op.operands), "x": view}, dict(op.attrs))
        else:
            out.append(op)
    return tuple(out)


def _continues(op: Op, last: Op) -> bool:
    if (op.name, last.name) != ("rope", "rope") or op.attrs != last.attrs:
        return False
    x, before = op.view("x"), last.view("x")
    same_angles = (op.weight("fine"), op.weight("coarse")) == (last.weight("fine"), last.weight("coarse"))
    return same_angles and x.buffer == before.buffer and x.offset == before.offset + before.cols
