"""Stages: a plan cut between layers, one device per stage.

All stages read the same step, so each stage declares every state group at the same index, with its own layers
of the group. Boundary buffers pass from stage to stage: buffers that one stage writes and a later stage uses.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

from camelid.plan.ops import OPS
from camelid.plan.plan import Buffer, Op, Plan, Stage, StateSpec
from camelid.plan.step import GROUP, HEADER, SAMPLING, SEQUENCE

Named = tuple[str, tuple[Op, ...]]  # a stage's name and its ops
ROWS = {"T": "rows", "S": "sequences", "O": "outputs"}  # a buffer's symbol -> its count in the step's header


def join_stages(
    parts: Sequence[Named], *, given: Sequence[Buffer] = (), made: Sequence[Buffer] = ()
) -> tuple[Stage, ...]:
    """Makes stages of named ops, in order.

    A stage's inputs are its buffers that an earlier stage uses too; its outputs are the buffers that it
    writes and a later stage uses. The first stage also takes the plan's inputs `given` and passes them on;
    the last stage also makes the plan's outputs `made`.
    """
    used = [_used(ops) for _, ops in parts]
    used[0] |= {buffer.name: buffer for buffer in given}
    written = [{name: used[i][name] for name in _written(ops)} for i, (_, ops) in enumerate(parts)]
    written[0] |= {buffer.name: buffer for buffer in given}
    made_by = len(parts) - 1
    return tuple(
        Stage(
            name,
            ops,
            (*(given if i == 0 else ()), *_shared(used[i], used[:i])),
            (*_shared(written[i], used[i + 1 :]), *(made if i == made_by else ())),
        )
        for i, (name, ops) in enumerate(parts)
    )


def _used(ops: Sequence[Op]) -> dict[str, Buffer]:
    return {view.buffer.name: view.buffer for op in ops for _, view in op.views()}


def _written(ops: Sequence[Op]) -> Iterator[str]:
    for op in ops:
        row = OPS[op.name]
        yield from (op.view(role).buffer.name for role in (*row.writes, *row.updates) if op.has(role))


def _shared(own: Mapping[str, Buffer], others: Sequence[Mapping[str, Buffer]]) -> tuple[Buffer, ...]:
    return tuple(buffer for name, buffer in own.items() if any(name in other for other in others))


def layer_ranges(cuts: Sequence[int], n_layers: int) -> list[range]:
    """Layers of each stage of a model that is cut before each layer of `cuts`."""
    return [range(start, end) for start, end in pairwise((0, *cuts, n_layers))]


def states_of(states: Sequence[StateSpec], layers: range) -> tuple[StateSpec, ...]:
    """State groups of the device that runs `layers`, at their indices.

    A group without any of these layers is declared empty. A group that belongs to no layer is on every
    device.
    """
    return tuple(_part(state, layers) if state.layers else state for state in states)


def _part(state: StateSpec, layers: range) -> StateSpec:
    own = tuple(layer for layer in state.layers if layer in layers)
    return replace(state, layers=own, tensors=state.tensors if own else ())


def split(plan: Plan, layers: Sequence[range]) -> list[Plan]:
    """Splits a plan into one plan per stage, with the stage's part of the state."""
    return [
        replace(plan, stages=(stage,), states=states_of(plan.states, own))
        for stage, own in zip(plan.stages, layers, strict=True)
    ]


def boundary_bytes(buffers: Sequence[Buffer], step: bytes) -> dict[str, int]:
    """Bytes of each buffer in this step, by name; rows are contiguous."""
    words = memoryview(step).cast("I") if buffers else ()
    return {b.name: words[HEADER.index(ROWS[b.rows])] * b.row_bytes for b in buffers}


def row_bytes(buffers: Sequence[Buffer]) -> int:
    """Bytes of one row, summed over the buffers."""
    return sum(buffer.row_bytes for buffer in buffers)


def penalised_slots(plan: Plan, step: bytes, group: str) -> Iterator[int]:
    """Ring slots whose earlier ids the penalties of this step read."""
    layout, words = plan.layout, memoryview(step).cast("I")
    slot = len(SEQUENCE) + len(GROUP) * plan.group(group) + GROUP.index("write")
    looks_back = layout.sampling_at + SAMPLING.index("penalty_last_n")
    for number in range(words[HEADER.index("sequences")]):
        sequence = layout.sequences_at + number * layout.sequence_words
        sampling = words[sequence + SEQUENCE.index("sampling")]
        if words[looks_back + len(SAMPLING) * sampling]:
            yield words[sequence + slot]
