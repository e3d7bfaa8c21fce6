"""Boundary buffers of one step as bytes between the stages of a plan, in the buffers' dtypes."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain

from camelid.backends.base import Program
from camelid.errors import BackendError
from camelid.plan.plan import Buffer, Plan
from camelid.plan.stages import boundary_bytes

Inputs = Mapping[str, bytes]


def checked_inputs(program: Program, step: bytes, inputs: Inputs | None, *, backend: str) -> Inputs:
    """Returns the inputs. Raises BackendError if they are not exactly the boundary buffers of the program."""
    want = boundary_bytes(_input_buffers(program.plan), step)
    got = {name: len(data) for name, data in (inputs or {}).items()}
    if got != want:
        raise BackendError(
            f"a step of program {program.key.entry!r} needs boundary buffers of bytes {want}, but got {got}; "
            "do they come from the previous stage of the same step?",
            backend=backend,
        )
    return inputs or {}


def _input_buffers(plan: Plan) -> tuple[Buffer, ...]:
    return tuple(chain.from_iterable(stage.inputs for stage in plan.stages[:1]))


def made_bytes(program: Program, step: bytes) -> dict[str, int]:
    """Bytes of each boundary buffer that a program writes for later stages, by name."""
    return boundary_bytes(tuple(chain.from_iterable(s.outputs for s in program.plan.stages[-1:])), step)
