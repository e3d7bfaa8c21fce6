"""Rewrites of ops in which each value has a buffer of its own: ops and copies that nobody reads go."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from camelid.plan.plan import Buffer, Op, Operand, View
from camelid.plan.training_forward import made_by, used_by

LASTING = frozenset({"outer", "measure"})  # ops whose effect is a state that outlives the step


def live_ops(ops: Sequence[Op], wanted: Collection[Buffer]) -> list[Op]:
    """The ops that a lasting state or a wanted buffer depends on."""
    return _backwards(ops, {*wanted}, LASTING, frozenset())


def only_for(ops: Sequence[Op], wanted: Collection[Buffer], known: Collection[Buffer]) -> list[Op]:
    """The ops that compute the wanted buffers from known ones and from those of other ops."""
    return _backwards(ops, {*wanted}, frozenset(), known)


def _backwards(
    ops: Sequence[Op], need: set[Buffer], lasting: Collection[str], known: Collection[Buffer]
) -> list[Op]:
    found: list[Op] = []
    for op in reversed(ops):
        if op.name in lasting or not need.isdisjoint(made_by(op)):
            found.append(op)
            need |= {*used_by(op)} - {*known}
    return found[::-1]


def renamed(op: Op, names: Mapping[Buffer, Buffer]) -> Op:
    """The op on other buffers."""

    def moved(operand: Operand) -> Operand:
        if isinstance(operand, View) and operand.buffer in names:
            return replace(operand, buffer=names[operand.buffer])
        return operand

    operands = tuple((role, moved(operand)) for role, operand in op.operands)
    return replace(op, operands=operands)


@dataclass(slots=True)
class _Uses:
    """Indices of the ops that use and that change a buffer."""

    used: list[int] = field(default_factory=list[int])
    changed: list[int] = field(default_factory=list[int])

    def join(self, other: _Uses, copy: int) -> None:
        self.used = sorted({*self.used, *other.used} - {copy})
        self.changed = sorted({*self.changed, *other.changed} - {copy})


def without_copies(ops: Sequence[Op], fixed: Collection[Buffer]) -> list[Op]:
    """Removes each copy whose original is not read after it, or while neither changes until the copy's last
    use: both become one buffer. `fixed` buffers stay as they are."""
    uses = _uses(ops)
    same: dict[Buffer, Buffer] = {}
    dropped: set[int] = set()
    for i, op in enumerate(ops):
        if op.name != "copy_rows":
            continue
        x, y = _root(op.view("x").buffer, same), op.view("y").buffer
        if {x, y}.isdisjoint(fixed) and _can_share(uses[x], uses[y], i):
            uses[x].join(uses[y], i)
            same[y] = x
            dropped.add(i)
    names = {buffer: _root(buffer, same) for buffer in same}
    return [renamed(op, names) for i, op in enumerate(ops) if i not in dropped]


def _can_share(x: _Uses, y: _Uses, copy: int) -> bool:
    if x.used[-1] <= copy:
        return True
    is_still = not any(copy < i <= y.used[-1] for i in x.changed)
    return is_still and y.changed == [copy]


def _root(buffer: Buffer, same: Mapping[Buffer, Buffer]) -> Buffer:
    while buffer in same:
        buffer = same[buffer]
    return buffer


def _uses(ops: Sequence[Op]) -> dict[Buffer, _Uses]:
    uses: dict[Buffer, _Uses] = {}
    for i, op in enumerate(ops):
        for buffer in {view.buffer for _, view in op.views()}:
            uses.setdefault(buffer, _Uses()).used.append(i)
        for buffer in {*made_by(op)}:
            uses[buffer].changed.append(i)
    return uses
