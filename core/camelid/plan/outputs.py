"""The rows asked for: what is left to do after a step's rows have last met is done for its outputs alone.

Of a prompt mostly one row is asked for, of a chunk amid a prompt none. Up to the last op that is not row-wise
(the last layer's attention, or its scan) every row counts. What follows, such as that layer's projection and
feed-forward block, needs no rows but those that `gather_rows` takes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain, islice

from camelid.plan.ops import OPS, make_op
from camelid.plan.plan import Buffer, Op, Plan, View, whole
from camelid.plan.stages import join_stages

GATHER = "gather_rows"
Places = Mapping[Buffer, View]  # what stands in the place of a buffer


def only_outputs(plan: Plan) -> Plan:
    """The same results, with rows gathered right behind the last op before that is not row-wise: those of
    each buffer that the row-wise ops go on with. From there on buffers are [O, C].

    A plan stays as it is that gathers no rows, may be asked for all of them, or needs all of them later on.
    """
    ops = plan.ops
    end = next((i for i, op in enumerate(ops) if op.name == GATHER), 0)
    start = _first_row_wise(ops, end)
    moving, later = _token_rows(ops[start : end + 1]), _token_rows(ops[end + 1 :])
    if start == end or plan.rows["O"] >= plan.rows["T"] or not {*moving}.isdisjoint(later):
        return plan
    return _with_ops(plan, _gathering_at(start, end, ops, moving))


def _gathering_at(start: int, end: int, ops: Sequence[Op], moving: Sequence[Buffer]) -> list[tuple[Op, ...]]:
    """What stands in the place of each op where these buffers are gathered at `start` instead of at `end`."""
    taken = {*moving} & {*_token_rows(ops[:start])}
    places = {b: whole(replace(b, name=f"{b.name}.out" if b in taken else b.name, rows="O")) for b in moving}
    gathers = [make_op(GATHER, {"y": places[b], "x": whole(b)}, {}) for b in moving if b in taken]
    places[ops[end].view("y").buffer] = _placed(ops[end].view("x"), places)
    instead: list[tuple[Op, ...]] = [(op,) for op in (*ops[:start], *(_on(op, places) for op in ops[start:]))]
    instead[start], instead[end] = (*gathers, *instead[start]), ()
    return instead


def _first_row_wise(ops: Sequence[Op], end: int) -> int:
    """Where the row-wise ops right before `end` begin."""
    while end and OPS[ops[end - 1].name].row_wise:
        end -= 1
    return end


def _token_rows(ops: Sequence[Op]) -> list[Buffer]:
    """The buffers [T, C] that these ops use, in order."""
    return list(dict.fromkeys(view.buffer for op in ops for _, view in op.views() if view.rows == "T"))


def _on(op: Op, places: Places) -> Op:
    """The op on what stands in the place of its buffers."""
    operands = ((role, _placed(o, places) if isinstance(o, View) else o) for role, o in op.operands)
    return replace(op, operands=tuple(operands))


def _placed(view: View, places: Places) -> View:
    """The same columns there."""
    place = places.get(view.buffer)
    return replace(view, buffer=place.buffer, offset=place.offset + view.offset) if place else view


def _with_ops(plan: Plan, instead: Sequence[tuple[Op, ...]]) -> Plan:
    """The plan with these in the place of each op, in the same stages."""
    each = iter(instead)
    parts = [(stage.name, tuple(chain.from_iterable(islice(each, len(stage.ops))))) for stage in plan.stages]
    return replace(plan, stages=join_stages(parts))
