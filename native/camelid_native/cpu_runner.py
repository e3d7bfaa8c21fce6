"""The threads of a backend and the step under way."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from camelid.errors import BackendError
from camelid_native.cpu_api import Library
from camelid_native.cpu_memory import Memory
from camelid_native.cpu_records import OpRecord, ProgramRecord
from camelid_native.cpu_states import StateMemory
from camelid_native.cpu_weights import WeightForms


@dataclass(slots=True)
class CpuProgram:
    """A compiled plan and all memory that its records point into."""

    record: ProgramRecord
    ops: ctypes.Array[OpRecord]
    weights: WeightForms
    states: Mapping[str, StateMemory]
    arena: Memory
    scratch: Memory
    result: Memory
    offsets: Mapping[str, int]

    @property
    def n_bytes(self) -> int:
        """Of what is its own."""
        return self.arena.n_bytes + self.scratch.n_bytes + self.result.n_bytes


@dataclass(slots=True)
class Flight:
    """A step that was submitted: its program and words, how many bytes it gives, and what they were; in which
    process its threads run, and whether it has ended there."""

    program: CpuProgram
    words: ctypes.Array[Any]
    n_bytes: int
    data: bytes = b""
    process: int = 0
    has_ended: bool = False


class Runner:
    """Runs one step at a time. While it does, it keeps everything that the threads read and write.

    It knows nothing of the backend, so that it can end the threads when the backend is dropped.
    """

    def __init__(self, library: Library, cpus: Sequence[int]) -> None:
        self._library = library
        self._pool = library.start(cpus)
        self._flight: Flight | None = None  # the step under way

    def submit(self, flight: Flight) -> None:
        """Begins a step; where one is under way, when that has ended."""
        self.settle()
        self._flight = flight  # before it begins: an interrupt in between must not lose a step
        program, flight.process = flight.program, os.getpid()
        self._library.submit(self._pool, ctypes.addressof(program.record), flight.words, program.result.at)

    def settle(self) -> None:
        """Waits for the step under way and keeps its results, whose place the next one takes. In a child of
        fork() there is none: it goes on in the parent alone."""
        flight = self._flight
        if flight and flight.process == os.getpid():
            self._library.wait(self._pool)
            flight.data = flight.program.result.read(0, flight.n_bytes)
            flight.has_ended = True
        self._flight = None

    def finish(self, flight: Flight) -> None:
        """Waits for this step, unless it has ended. BackendError where another process runs it."""
        if flight is self._flight:
            self.settle()
        if not flight.has_ended:
            raise BackendError(
                "the step was under way when this process was forked, and ends in its parent alone; fork "
                "between steps, or load the model anew in the child",
                backend="cpu",
            )

    def stop(self) -> None:
        """Ends the threads, once their step has ended. A second call does nothing."""
        self.settle()
        pool, self._pool = self._pool, 0
        if pool:
            self._library.stop(pool)
