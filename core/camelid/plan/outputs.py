"""Output rows: the ops after the last mixing of rows run on the step's output rows only.

A prefill has one output in most cases, a chunk inside a prompt none. Every row matters up to the last op that
is not row-wise: the attention or scan of the last layer. Later ops, such as that layer's projection and
feed-forward block, need only the rows that `gather_rows` reads.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain, islice

from camelid.plan.ops import OPS, make_op
from camelid.plan.plan import Buffer, Op, Plan, View, whole
from camelid.plan.stages import join_stages

GATHER = "gather_rows"
Places = Mapping[Buffer, View]  # a buffer -> the view that replaces it


def only_outputs(plan: Plan) -> Plan:
    """Moves the gather of output rows to right behind the last op that is not row-wise; results stay equal.

    The moved gather covers each buffer that later row-wise ops read; from there on buffers are [O, C]. The
    plan is returned unchanged if it gathers no rows, has as many outputs as rows, or reads a moved buffer's
    token rows after the gather.
    """
    ops = plan.ops
    end = next((i for i, op in enumerate(ops) if op.name == GATHER), 0)
    start = _first_row_wise(ops, end)
    moving, later = _token_rows(ops[start : end + 1]), _token_rows(ops[end + 1 :])
    if start == end or plan.rows["O"] >= plan.rows["T"] or not {*moving}.isdisjoint(later):
        return plan
    return _with_ops(plan, _gathering_at(start, end, ops, moving))


def _gathering_at(start: int, end: int, ops: Sequence[Op], moving: Sequence[Buffer]) -> list[tuple[Op, ...]]:
    """The ops that replace each op when the `moving` buffers are gathered at `start`, not at `end`."""
    gathered = {*moving} & {*_token_rows(ops[:start])}
    places = {
        b: whole(replace(b, name=f"{b.name}.out" if b in gathered else b.name, rows="O")) for b in moving
    }
    gathers = [make_op(GATHER, {"y": places[b], "x": whole(b)}, {}) for b in moving if b in gathered]
    places[ops[end].view("y").buffer] = _placed(ops[end].view("x"), places)
    instead: list[tuple[Op, ...]] = [(op,) for op in (*ops[:start], *(_on(op, places) for op in ops[start:]))]
    instead[start], instead[end] = (*gathers, *instead[start]), ()
    return instead


def _first_row_wise(ops: Sequence[Op], end: int) -> int:
    """Index of the first op of the run of row-wise ops that ends at `end`."""
    while end and OPS[ops[end - 1].name].row_wise:
        end -= 1
    return end


def _token_rows(ops: Sequence[Op]) -> list[Buffer]:
    """Buffers [T, C] that these ops use, in order of first use."""
    return list(dict.fromkeys(view.buffer for op in ops for _, view in op.views() if view.rows == "T"))


def _on(op: Op, places: Places) -> Op:
    """The op with its views moved to the replacing buffers."""
    operands = ((role, _placed(o, places) if isinstance(o, View) else o) for role, o in op.operands)
    return replace(op, operands=tuple(operands))


def _placed(view: View, places: Places) -> View:
    """The same columns in the replacing buffer."""
    place = places.get(view.buffer)
    return replace(view, buffer=place.buffer, offset=place.offset + view.offset) if place else view


def _with_ops(plan: Plan, instead: Sequence[tuple[Op, ...]]) -> Plan:
    """The plan with each op replaced by the ops at its index of `instead`, in the same stages."""
    each = iter(instead)
    parts = [(stage.name, tuple(chain.from_iterable(islice(each, len(stage.ops))))) for stage in plan.stages]
    return replace(plan, stages=join_stages(parts, given=plan.given, made=plan.made))
