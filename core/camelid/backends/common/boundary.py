"""Steps as bytes: their number of outputs, and boundary buffers (activations between plan stages)."""

from __future__ import annotations

from collections.abc import Mapping, Sized
from itertools import chain
from struct import unpack_from
from typing import TypeVar

from camelid.backends.base import Program
from camelid.errors import BackendError
from camelid.plan.plan import Buffer, Plan
from camelid.plan.stages import boundary_bytes

Data = TypeVar("Data", bound=Sized)  # bytes, or an array with a length in bytes


def checked_inputs(
    program: Program, step: bytes, inputs: Mapping[str, Data] | None, *, backend: str
) -> Mapping[str, Data]:
    """Returns the inputs.

    Raises BackendError if their names or byte lengths are not those of the program's boundary buffers.
    """
    buffers = input_buffers(program.plan)
    if not buffers and not inputs:  # a whole plan, at every step
        return {}
    expected = boundary_bytes(buffers, step)
    given = {name: len(data) for name, data in (inputs or {}).items()}
    if given != expected:
        raise BackendError(
            f"program {program.key.entry!r} expects boundary buffers with byte sizes {expected}, "
            f"got {given}; pass the outputs of the previous stage for the same step",
            backend=backend,
        )
    return inputs or {}


def outputs_of(program: Program, step: bytes) -> int:
    """The number of outputs of a step."""
    return unpack_from("<I", step, 4 * program.plan.layout.header_word("outputs"))[0]


def input_buffers(plan: Plan) -> tuple[Buffer, ...]:
    """The first stage's inputs; () for a whole plan."""
    return tuple(chain.from_iterable(stage.inputs for stage in plan.stages[:1]))


def made_bytes(program: Program, step: bytes) -> dict[str, int]:
    """Bytes of each boundary buffer that a program writes for later stages, by name."""
    return boundary_bytes(tuple(chain.from_iterable(s.outputs for s in program.plan.stages[-1:])), step)
