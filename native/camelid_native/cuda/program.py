"""A compiled plan: its memory, one graph per slot, and the results of steps in flight.

A slot is pinned memory for a step and its results. The graph of a slot copies the step to the device, runs
all kernels and copies the records of drawn ids back: one call of the host a step, and one that marks its end.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from camelid.backends.common.results import GIVEN
from camelid.errors import BackendError
from camelid.plan.memory import Arena
from camelid.plan.plan import Plan
from camelid.plan.step import CANDIDATE_WORDS, RESULT_WORDS
from camelid_native.cuda.boundary import Boundary
from camelid_native.cuda.device import Device, Grid
from camelid_native.cuda.holdings import Holdings

FLOATS = "floats"  # the results that may stay on the device
SLOTS = 3  # two steps in flight, and one whose read has begun


@dataclass(frozen=True, slots=True)
class Sum:
    """A sum over devices: the address and bytes of this device's part, and where the parts of all lie here.

    The part of device i goes to `parts_at + i * each` on every device.
    """

    at: int
    n_bytes: int
    parts_at: int
    each: int


@dataclass(frozen=True, slots=True)
class Launch:
    """A kernel with its grid and arguments. The kernel of a `sum` adds the parts of all devices."""

    kernel: Any
    grid: Grid
    threads: int
    arguments: Sequence[bytes]
    sum: Sum | None = None


@dataclass(frozen=True, slots=True)
class Section:
    """Results of one kind, as in `result_sizes`: address on the device, bytes per output, offset in a slot.

    The graph copies results `of_graph` at full capacity; larger ones follow it, as many as the step has.
    """

    name: str
    at: int
    each: int
    offset: int

    @property
    def of_graph(self) -> bool:
        return self.name == "result"


@dataclass(slots=True, eq=False)
class Flight:
    """A submitted step, then its results."""

    owner: CudaProgram
    slot: int
    n_outputs: int
    has_floats: bool  # in the slot
    mark: Any  # None after the step
    step: bytes
    data: bytes | None = None  # the results' bytes


class CudaProgram:
    """A compiled plan on its device."""

    def __init__(
        self,
        device: Device,
        plan: Plan,
        memory: Memory,
        launches: Sequence[Launch],
        holdings: Holdings,
        arena: Arena,
    ) -> None:
        """`holdings` owns the memory, and from now on the pinned memory and the graphs too."""
        self.device, self.plan, self.memory, self.launches = device, plan, memory, launches
        self.holdings = holdings
        outputs = plan.key.capacity.outputs
        self._sections = memory.sections
        self._after_graph = [section for section in self._sections if not section.of_graph]
        n_bytes = max(sum(s.each for s in self._sections) * outputs, 16)
        self._steps = [holdings.pinned(memory.step_bytes) for _ in range(SLOTS)]
        self._results = [holdings.pinned(n_bytes) for _ in range(SLOTS)]
        self._graphs: list[Any] = []
        self._free = list(range(SLOTS))
        self._held: dict[int, Sequence[object]] = {}
        self._marks: dict[int, Any] = {}  # events of steps in flight, by slot
        self.places = {name: memory.arena_at + offset for name, offset in arena.offsets.items()}  # of buffers
        self._boundary = Boundary(device, holdings, plan, self.places, SLOTS)

    @property
    def n_launches(self) -> int:
        return len(self.launches)

    @property
    def float_bytes(self) -> int:
        """Bytes of the floats of an output; 0 for a program without."""
        return sum(section.each for section in self._sections if section.name == FLOATS)

    def capture(self) -> None:
        """Captures the graphs of all slots."""
        self._graphs = [self.holdings.capture(lambda slot=slot: self._enqueue(slot)) for slot in range(SLOTS)]

    def submit(self, step: bytes, n_outputs: int, floats_to: int = 0) -> Flight:
        """Enqueues a step, whose floats go to an address of the device, or to the slot.

        Raises BackendError for a step of another size, or beyond the slots.
        """
        slot = self.fill_slot(step)
        self.device.replay(self._graphs[slot])
        return self.flight(slot, step, n_outputs, floats_to)

    def check(self, step: bytes) -> None:
        """Raises as `submit`."""
        if len(step) != self.memory.step_bytes:
            raise BackendError(
                f"cuda: a step of program {self.plan.key.entry!r} has {len(step):,} bytes, expected "
                f"{self.memory.step_bytes:,}; was it encoded with another plan's layout?", backend="cuda",
            )  # fmt: skip
        if not self._free:
            raise BackendError(f"cuda: {SLOTS} steps are in flight; read one first", backend="cuda")

    def fill_slot(self, step: bytes) -> int:
        """Puts a step into a free slot. Raises as `submit`."""
        self.check(step)
        slot = self._free.pop(0)
        self._steps[slot][1][:] = step
        return slot

    def flight(self, slot: int, step: bytes, n_outputs: int, floats_to: int = 0) -> Flight:
        """The step whose graph is enqueued."""
        for section in self._after_graph if n_outputs else ():
            if floats_to and section.name == FLOATS:
                self.device.copy(floats_to, section.at, section.each * n_outputs)
            else:
                self._copy_back(slot, section, n_outputs)
        self._boundary.copy(slot, step)
        mark = self._marks[slot] = self.device.mark()
        return Flight(self, slot, n_outputs, not floats_to, mark, step)

    def hold(self, flight: Flight, arrays: Sequence[object]) -> None:
        """Keeps the arrays that a step reads until it is over."""
        if arrays:
            self._held[flight.slot] = arrays

    def is_done(self, flight: Flight) -> bool:
        """True if `read` does not wait: the step is over, or its device is lost."""
        with suppress(BackendError):
            return flight.mark is None or self.device.is_done(flight.mark)
        return True

    def read_boundary(self, flight: Flight) -> dict[str, bytes]:
        """Waits for a step and returns its boundary buffers, which `read` gives up."""
        self._settle(flight)
        return self._boundary.read(flight.slot, flight.step)

    def read(self, flight: Flight) -> bytes:
        """Waits for a step and returns its results; a repeated read returns the same bytes."""
        if flight.data is None:
            flight.data = b""
            try:
                self._settle(flight)
                held = self._results[flight.slot][1]
                sections = [s for s in self._sections if flight.has_floats or s.name != FLOATS]
                places = [(s.offset, s.each * flight.n_outputs) for s in sections]
                flight.data = b"".join(bytes(held[start : start + n]) for start, n in places)
            finally:
                self._free.append(flight.slot)
        return flight.data

    def _settle(self, flight: Flight) -> None:
        if flight.mark is not None:
            self._marks.pop(flight.slot, None)
            self.device.wait(flight.mark)
            flight.mark = None
            self._held.pop(flight.slot, None)

    def close(self) -> None:
        """Frees the memory of the program, and the events of steps that nobody has read."""
        for mark in self._marks.values():
            with suppress(BackendError):  # of a lost device
                self.device.forget(mark)
        self._marks.clear()
        self.holdings.close()
        self._held.clear()

    def _enqueue(self, slot: int) -> None:
        self.copy_step(slot)
        for one in self.launches:
            self.launch(one)
        self.copy_results(slot)

    def copy_step(self, slot: int) -> None:
        """Enqueues the copy of a slot's step to the device."""
        self.device.copy(self.memory.step_at, self._steps[slot][0], self.memory.step_bytes)

    def launch(self, one: Launch) -> None:
        """Enqueues a launch."""
        self.device.launch(one.kernel, one.grid, one.threads, one.arguments)

    def copy_results(self, slot: int) -> None:
        """Enqueues the copy of drawn ids to a slot."""
        for section in self._sections:
            if section.of_graph:
                self._copy_back(slot, section, self.plan.key.capacity.outputs)

    def _copy_back(self, slot: int, section: Section, n: int) -> None:
        self.device.copy(self._results[slot][0] + section.offset, section.at, section.each * n)


class Memory:
    """Memory of a program on the device: step, activations, scratch and results."""

    def __init__(
        self, device: Device, holdings: Holdings, plan: Plan, arena_bytes: int, scratch_bytes: int
    ) -> None:
        self.step_bytes = 4 * plan.layout.n_words
        outputs, each = plan.key.capacity.outputs, result_sizes(plan)
        sizes = memory_sizes(plan, arena_bytes, scratch_bytes)
        self.n_bytes = sum(sizes.values())
        self._at = {name: holdings.allocate(n) for name, n in sizes.items()}
        for name in ("arena", "scratch"):
            device.fill(self._at[name], 0, sizes[name])
        self.step_at, self.arena_at, self.scratch_at = (self._at[n] for n in ("step", "arena", "scratch"))
        self.results: Mapping[str, int] = {name: self._at[name] for name in each}
        starts = accumulate((n * outputs for n in each.values()), initial=0)
        self.sections = [
            Section(name, self._at[name], n, start)
            for (name, n), start in zip(each.items(), starts, strict=False)
            if n
        ]


def memory_sizes(plan: Plan, arena_bytes: int, scratch_bytes: int) -> dict[str, int]:
    """Bytes of a program's memory on the device, by use."""
    sizes = {"step": 4 * plan.layout.n_words, "arena": arena_bytes, "scratch": scratch_bytes}
    sizes |= {name: n * plan.key.capacity.outputs for name, n in result_sizes(plan).items()}
    return {name: max(n, 16) for name, n in sizes.items()}


def result_sizes(plan: Plan) -> dict[str, int]:
    """Bytes per output of the results by kernel parameter, in the order of `output_rows`; floats are emitted
    rows, or logits with the feature `all_logits`.
    """
    answers = {op.name: op.view(GIVEN[op.name]).cols for op in plan.ops if op.name in GIVEN}
    has_floats = "emit" in answers or "all_logits" in plan.key.features
    return {
        "result": 4 * RESULT_WORDS * bool(answers),
        "candidates": 4 * CANDIDATE_WORDS * any(op.name == "candidates" for op in plan.ops),
        FLOATS: 4 * next(iter(answers.values()), 0) * has_floats,
    }
