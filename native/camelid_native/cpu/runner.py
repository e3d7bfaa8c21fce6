"""The threads of a backend and the steps under way."""

from __future__ import annotations

import ctypes
import os
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from camelid.errors import BackendError
from camelid_native.cpu.api import Library
from camelid_native.cpu.memory import Memory
from camelid_native.cpu.records import MOST_RUNS, OpRecord, ProgramRecord
from camelid_native.cpu.states import StateMemory
from camelid_native.cpu.weights import WeightForms

PLACES_BYTES = 1 << 17  # all logits of a vocabulary of 150,000 are 0.6 MB an output


def result_places(n_bytes: int) -> int:
    """Places for a program's results, of so many bytes each. With several its next steps can wait behind the
    one under way, whose results are read later."""
    return max(min(PLACES_BYTES // max(n_bytes, 1), MOST_RUNS), 1)


@dataclass(slots=True)
class CpuProgram:
    """A compiled plan and all memory that its records point into."""

    record: ProgramRecord
    ops: ctypes.Array[OpRecord]
    weights: WeightForms
    states: Mapping[str, StateMemory]
    arena: Memory
    scratch: Memory
    results: tuple[Memory, ...]
    places: Iterator[Memory]  # of results, in turn
    output_bytes: int  # of the results
    offsets: Mapping[str, int]

    @property
    def n_bytes(self) -> int:
        """Of what is its own."""
        return sum(memory.n_bytes for memory in (self.arena, self.scratch, *self.results))


@dataclass(slots=True, eq=False)
class CpuStep:
    """A step that was submitted: its program and bytes, where its results come and how many bytes, and what
    they were; in which process its threads run, and whether it has ended there."""

    program: CpuProgram
    step: bytes
    n_bytes: int
    result: Memory
    data: bytes = b""
    process: int = 0
    has_begun: bool = False
    has_ended: bool = False


class Runner:
    """Runs steps in order. Until one has ended it keeps everything that the threads read and write for it.

    It knows nothing of the backend, so that it can end the threads when the backend is dropped.
    """

    def __init__(self, library: Library, cpus: Sequence[int]) -> None:
        self._library = library
        self._pool = library.start(cpus)
        self._flights: deque[CpuStep] = deque()  # the steps under way, the oldest first

    def submit(self, flight: CpuStep) -> None:
        """Begins a step, or lets it wait behind those under way, once it and its results have a place."""
        self.settle(min(self._n_after(flight.result), MOST_RUNS - 1))
        program, flight.process = flight.program, os.getpid()
        self._flights.append(flight)  # before it begins: an interrupt in between must not lose a step
        self._library.submit(self._pool, ctypes.addressof(program.record), flight.step, flight.result.at)
        flight.has_begun = True

    def _n_after(self, result: Memory) -> int:
        """Steps after the last one under way whose results come to that place."""
        for n, flight in enumerate(reversed(self._flights)):
            if flight.result is result:
                return n
        return len(self._flights)

    def settle(self, most: int = 0) -> None:
        """Waits until at most so many steps are under way, and keeps the results of the others, whose places
        later steps take. In a child of fork() there is none: they go on in the parent alone."""
        flights = self._flights
        if flights and flights[0].process != os.getpid():
            flights.clear()
        if len(flights) > most:
            is_sure = all(flight.has_begun for flight in flights)  # the pool counts those that have alone
            self._library.wait(self._pool, most if is_sure else 0)
        for flight in list(flights)[: max(len(flights) - most, 0)]:
            flight.data = flight.result.read(0, flight.n_bytes)
            flight.has_ended = True
            flights.remove(flight)

    def finish(self, flight: CpuStep) -> None:
        """Waits for this step, unless it has ended. BackendError where another process runs it."""
        if flight in self._flights:
            self.settle(len(self._flights) - 1 - self._flights.index(flight))
        if not flight.has_ended:
            raise BackendError(
                "the step was under way when this process was forked, and ends in its parent alone; fork "
                "between steps, or load the model anew in the child",
                backend="cpu",
            )

    def stop(self) -> None:
        """Ends the threads, once their steps have ended. A second call does nothing."""
        self.settle()
        pool, self._pool = self._pool, 0
        if pool:
            self._library.stop(pool)
