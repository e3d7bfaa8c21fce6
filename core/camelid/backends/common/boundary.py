"""Boundary buffers as bytes, passed between the stages of a plan: each buffer's dtype, the step's rows."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain

from camelid.backends.base import Program
from camelid.errors import BackendError
from camelid.plan.plan import Buffer, Plan
from camelid.plan.stages import boundary_bytes

Inputs = Mapping[str, bytes]


def checked_inputs(program: Program, step: bytes, inputs: Inputs | None, *, backend: str) -> Inputs:
    """The buffers that a program takes. BackendError unless they are all there, each in its size."""
    want = boundary_bytes(_taken(program.plan), step)
    got = {name: len(data) for name, data in (inputs or {}).items()}
    if got != want:
        raise BackendError(
            f"a step of program {program.key.entry!r} takes boundary buffers of bytes {want}, but got {got}; "
            "do they come from the stage before, in the same step?",
            backend=backend,
        )
    return inputs or {}


def _taken(plan: Plan) -> tuple[Buffer, ...]:
    return tuple(chain.from_iterable(stage.inputs for stage in plan.stages[:1]))


def made_bytes(program: Program, step: bytes) -> dict[str, int]:
    """Bytes of each buffer that a program makes for stages that follow."""
    return boundary_bytes(tuple(chain.from_iterable(s.outputs for s in program.plan.stages[-1:])), step)
