"""Sums over the devices of a tensor-parallel model: where the devices' parts lie, and how they get there.

A device copies its part to every device, waits for the parts of all, and adds them in the order of devices.
Two sets of parts take turns: a device writes a set again after all have arrived at the next sum, so all have
read it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from camelid.plan.parallel import SUM
from camelid.plan.plan import Op
from camelid_native.cuda.device import Device, aligned
from camelid_native.cuda.kernel import Context
from camelid_native.cuda.program import CudaProgram, Launch, Sum
from camelid_native.cuda.signature import Values

SETS = 2


@dataclass(frozen=True, slots=True)
class Parts:
    """Memory for the parts of `n` devices, `each` bytes a part, in two sets."""

    n: int
    each: int

    @property
    def n_bytes(self) -> int:
        return SETS * self.n * self.each


class SumPlaces:
    """Arguments of the kernels that add parts; the sums of a plan take the sets in turns."""

    def __init__(self, parts: Parts, at: int) -> None:
        self._parts, self._at, self._number = parts, at, 0

    def values(self, op: Op) -> Values:
        """The places of the next sum; none for other ops."""
        if op.name != SUM:
            return {}
        turn, self._number = self._number % SETS, self._number + 1
        at = self._at + turn * self._parts.n * self._parts.each
        return {"parts": at, "n": self._parts.n, "each": self._parts.each // 4}


def parts_of(ops: Sequence[Op], context: Context) -> Parts:
    """The memory that the sums of a plan need."""
    if context.n_devices == 1:
        return Parts(1, 0)
    most = max((_part_bytes(op, context) for op in ops if op.name == SUM), default=0)
    return Parts(context.n_devices, aligned(most))


def sum_of(op: Op, context: Context, values: Values) -> Sum | None:
    """The copies before the launch of a sum."""
    if op.name != SUM:
        return None
    at, parts_at, each = values["x"], values["parts"], values["each"]
    assert isinstance(at, tuple) and isinstance(parts_at, int) and isinstance(each, int)
    return Sum(at[0], _part_bytes(op, context), parts_at, 4 * each)


def _part_bytes(op: Op, context: Context) -> int:
    return context.rows(op, "x") * op.view("x").buffer.row_bytes


class Collective(Protocol):
    """A way to sum over devices, enqueued in their streams."""

    def all_reduce(self, launches: Sequence[Launch]) -> None: ...
    def settle(self) -> None: ...


class PeerSums(Collective):
    """Sums by copies between devices, which every driver has, in one order of devices."""

    def __init__(self, programs: Sequence[CudaProgram]) -> None:
        self._programs = programs
        self._marks: list[tuple[Device, Any]] = []

    def all_reduce(self, launches: Sequence[Launch]) -> None:
        """Enqueues a sum: the launches of each device's kernel, behind the copies of all parts."""
        sums = [launch.sum for launch in launches if launch.sum]
        for rank, (program, own) in enumerate(zip(self._programs, sums, strict=True)):
            for other in sums:
                program.device.copy(other.parts_at + rank * other.each, own.at, own.n_bytes)
        self.meet()
        for program, launch in zip(self._programs, launches, strict=True):
            program.launch(launch)

    def meet(self) -> None:
        """Enqueues that every device waits for all others."""
        marks = [(program.device, program.device.mark()) for program in self._programs]
        for program in self._programs:
            for device, mark in marks:
                if device is not program.device:
                    program.device.after(mark)
        self._marks += marks

    def settle(self) -> None:
        """Frees events, after their capture."""
        for device, mark in self._marks:
            device.forget(mark)
        self._marks = []
