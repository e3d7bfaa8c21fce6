"""Thread pool of the backend and its queue of running steps."""

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
    """Number of result buffers of a program whose results have `n_bytes` per step.

    With several buffers, steps queue behind the running one before its results are read.
    """
    return max(min(PLACES_BYTES // max(n_bytes, 1), MOST_RUNS), 1)


@dataclass(slots=True)
class CpuProgram:
    """A compiled plan with all memory that its records point into."""

    record: ProgramRecord
    ops: ctypes.Array[OpRecord]
    weights: WeightForms
    states: Mapping[str, StateMemory]
    arena: Memory
    scratch: Memory
    results: tuple[Memory, ...]
    places: Iterator[Memory]  # cycles through `results`
    output_bytes: int  # result bytes of one output
    offsets: Mapping[str, int]

    @property
    def n_bytes(self) -> int:
        """Bytes of the arena, the scratch and the results; weights and states are shared."""
        return sum(memory.n_bytes for memory in (self.arena, self.scratch, *self.results))


@dataclass(slots=True, eq=False)
class CpuStep:
    """A submitted step."""

    program: CpuProgram
    step: bytes
    n_bytes: int  # of the results
    result: Memory  # buffer that the kernels write to
    data: bytes = b""  # the results, copied when the step has ended
    process: int = 0  # pid of the process whose threads run the step
    has_begun: bool = False
    has_ended: bool = False


class Runner:
    """Runs steps in order. It keeps all memory of a step alive until the step has ended.

    The runner has no reference to the backend, so that a finalizer of the backend can stop the threads.
    """

    def __init__(self, library: Library, cpus: Sequence[int]) -> None:
        self._library = library
        self._pool = library.start(cpus)
        self._flights: deque[CpuStep] = deque()  # running and queued steps, the oldest first

    def submit(self, flight: CpuStep) -> None:
        """Queues a step, after a wait for a free place in the queue and for its result buffer."""
        self.settle(min(self._n_after(flight.result), MOST_RUNS - 1))
        program, flight.process = flight.program, os.getpid()
        self._flights.append(flight)  # before the submit: an interrupt in between must not lose the step
        self._library.submit(self._pool, ctypes.addressof(program.record), flight.step, flight.result.at)
        flight.has_begun = True

    def _n_after(self, result: Memory) -> int:
        """Number of steps queued after the last step that writes to `result`."""
        for n, flight in enumerate(reversed(self._flights)):
            if flight.result is result:
                return n
        return len(self._flights)

    def settle(self, most: int = 0) -> None:
        """Waits until at most `most` steps are unfinished, and copies the results of the ended steps, as
        later steps reuse their buffers. A child of fork() drops all steps: they run in the parent only."""
        flights = self._flights
        if flights and flights[0].process != os.getpid():
            flights.clear()
        if len(flights) > most:
            is_sure = all(flight.has_begun for flight in flights)  # the pool counts begun steps only
            self._library.wait(self._pool, most if is_sure else 0)
        for flight in list(flights)[: max(len(flights) - most, 0)]:
            flight.data = flight.result.read(0, flight.n_bytes)
            flight.has_ended = True
            flights.remove(flight)

    def finish(self, flight: CpuStep) -> None:
        """Waits until the step has ended. Raises BackendError if the parent of this process runs the step."""
        if flight in self._flights:
            self.settle(len(self._flights) - 1 - self._flights.index(flight))
        if not flight.has_ended:
            raise BackendError(
                "the step was under way when this process was forked, and ends in the parent process only; "
                "fork between steps, or load the model again in the child",
                backend="cpu",
            )

    def stop(self) -> None:
        """Waits for all steps and ends the threads. A second call does nothing."""
        self.settle()
        pool, self._pool = self._pool, 0
        if pool:
            self._library.stop(pool)
