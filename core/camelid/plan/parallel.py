"""Tensor-parallel plans: a device's plan cut at its sums over devices, and state joined from the devices'."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from camelid.errors import PlanError
from camelid.formats.quants import row_bytes
from camelid.plan.plan import Buffer, Op, Plan, StateSpec, View
from camelid.plan.stages import join_stages

SUM = "all_reduce"


@dataclass(frozen=True, slots=True)
class Segment:
    """The ops of a plan between two sums; `total` is the buffer that is summed behind them, if any."""

    plan: Plan
    total: Buffer | None


def segments(plan: Plan) -> list[Segment]:
    """The plan cut at its sums, whose ops are left out.

    Raises PlanError for a sum over a part of a buffer.
    """
    parts: list[list[Op]] = [[]]
    totals: list[Buffer | None] = []
    for op in plan.ops:
        if op.name == SUM:
            totals.append(_whole(op.view("x")))
            parts.append([])
        else:
            parts[-1].append(op)
    stages = join_stages([(f"{SUM}.{i}", tuple(ops)) for i, ops in enumerate(parts)])
    return [
        Segment(replace(plan, stages=(stage,)), total)
        for stage, total in zip(stages, [*totals, None], strict=True)
    ]


def _whole(view: View) -> Buffer:
    if view.cols != view.buffer.cols:
        raise PlanError(f"{SUM}: {view} is a part of its buffer; boundary buffers are whole", op=SUM)
    return view.buffer


def join_unit(state: StateSpec, shares: Sequence[StateSpec], units: Sequence[bytes]) -> bytes:
    """A unit of a group from the devices' units: the columns of each row side by side."""
    rows, starts = list[bytes](), [0] * len(units)
    for sizes in _row_sizes(state, shares):
        for i, (size, unit) in enumerate(zip(sizes, units, strict=True)):
            rows.append(unit[starts[i] : starts[i] + size])
            starts[i] += size
    return b"".join(rows)


def split_unit(state: StateSpec, shares: Sequence[StateSpec], unit: bytes) -> list[bytes]:
    """The devices' units of a unit, as `join_unit` joins them."""
    parts: list[list[bytes]] = [[] for _ in shares]
    at = 0
    for sizes in _row_sizes(state, shares):
        for part, size in zip(parts, sizes, strict=True):
            part.append(unit[at : at + size])
            at += size
    return [b"".join(part) for part in parts]


def _row_sizes(state: StateSpec, shares: Sequence[StateSpec]) -> list[list[int]]:
    """Bytes of each row of a unit on each device, in the unit's order: by layer, tensor and row."""
    each = [
        [row_bytes(share.kv_type, share.tensors[i][1]) for share in shares] for i in range(len(state.tensors))
    ]
    return [sizes for _ in state.layers for sizes in each for _ in range(state.unit_rows)]
