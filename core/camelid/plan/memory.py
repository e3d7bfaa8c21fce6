"""Memory planning: arena offsets of activations, by lifetime."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from camelid.plan.plan import Buffer, Plan

ALIGN = 256  # WebGPU's minStorageBufferOffsetAlignment, the strictest of all backends


@dataclass(frozen=True, slots=True)
class Arena:
    """Byte offsets of activations by buffer name, and the arena's size."""

    offsets: Mapping[str, int]
    n_bytes: int


@dataclass(frozen=True, slots=True)
class _Life:
    buffer: Buffer
    first: int
    last: int
    n_bytes: int


def plan_arena(plan: Plan) -> Arena:
    """Places buffers by first fit, largest first. Buffers with overlapping lifetimes share no bytes."""
    placed: list[tuple[int, _Life]] = []
    for life in sorted(_lifetimes(plan), key=lambda life: (-life.n_bytes, life.first)):
        placed.append((_first_gap(placed, life), life))
    end = max((offset + life.n_bytes for offset, life in placed), default=0)
    return Arena({life.buffer.name: offset for offset, life in placed}, end)


def buffer_bytes(buffer: Buffer, plan: Plan) -> int:
    """Bytes of a buffer at full capacity, padded to `ALIGN`."""
    n_bytes = plan.rows[buffer.rows] * buffer.row_bytes
    return -(-n_bytes // ALIGN) * ALIGN


def _lifetimes(plan: Plan) -> list[_Life]:
    seen: dict[str, _Life] = {}
    for i, buffer in _uses(plan):
        first = seen[buffer.name].first if buffer.name in seen else i
        seen[buffer.name] = _Life(buffer, first, i, buffer_bytes(buffer, plan))
    return list(seen.values())


def _uses(plan: Plan) -> Iterator[tuple[int, Buffer]]:
    """Yields (op index, buffer) for each use.

    A stage's input is used at the stage's first op, its output at the last.
    """
    at = 0
    for stage in plan.stages:
        yield from ((at, buffer) for buffer in stage.inputs)
        yield from ((at + i, view.buffer) for i, op in enumerate(stage.ops) for _, view in op.views())
        at += len(stage.ops)
        yield from ((at - 1, buffer) for buffer in stage.outputs)


def _first_gap(placed: list[tuple[int, _Life]], life: _Life) -> int:
    first, last = life.first, life.last
    overlapping = [placing for placing in placed if placing[1].first <= last and first <= placing[1].last]
    busy = sorted((offset, offset + other.n_bytes) for offset, other in overlapping)
    at = 0
    for start, end in busy:
        if at + life.n_bytes <= start:
            break
        at = max(at, end)
    return at
