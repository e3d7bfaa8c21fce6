"""Which rows the next step holds: decode rows first, then prefill chunks, up to the token budget."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from camelid.errors import RequestError
from camelid.plan.step import Capacity, ProgramKey, Step, StepSequence
from camelid.sequence import Sequence
from camelid.state import StateManager

DECODE, MIXED = "decode", "mixed"
ALL_LOGITS, GUIDED = "all_logits", "guided"


@dataclass(frozen=True, slots=True)
class Limits:
    """`chunk` rows in a mixed step; at most `parallel` sequences run at once."""

    chunk: int = 64
    parallel: int = 4

    def __post_init__(self) -> None:
        # One row more than all decode rows, so that a prefill always advances.
        if not 1 <= self.parallel < self.chunk:
            raise RequestError(
                f"parallel is {self.parallel} and chunk {self.chunk}; expected 1 <= parallel < chunk",
                field="parallel",
            )


def program_key(entry: str, limits: Limits, page_rows: int, *, n_paged: int = 1) -> ProgramKey:
    """The key of `decode`, `mixed`, or what is the same but returns logits: `guided`, `all_logits`.

    Each of the model's `n_paged` groups may take new pages of `page_rows` in one step.
    """
    n = limits.parallel
    if entry in (DECODE, GUIDED):
        capacity = Capacity(rows=n, sequences=n, outputs=n, updates=n_paged * n)
        return ProgramKey(
            entry=DECODE, capacity=capacity, features=frozenset({ALL_LOGITS} if entry == GUIDED else ())
        )
    rows, is_full = limits.chunk, entry == ALL_LOGITS
    updates = n_paged * (-(-rows // page_rows) + n)
    capacity = Capacity(rows=rows, sequences=n, outputs=rows if is_full else n, updates=updates)
    return ProgramKey(entry=MIXED, capacity=capacity, features=frozenset({ALL_LOGITS} if is_full else ()))


@dataclass(frozen=True, slots=True)
class Work:
    """One sequence's share of a step: its next `n_rows` rows, and how many outputs it asks for."""

    sequence: Sequence
    n_rows: int
    n_outputs: int


@dataclass(frozen=True, slots=True)
class Batch:
    """What one step does, and the program that does it."""

    program: str
    work: tuple[Work, ...]


class Scheduler:
    """First come, first served: `waiting` sequences get a seat in order, `running` ones hold theirs."""

    def __init__(self, state: StateManager, limits: Limits) -> None:
        self.state = state
        self.limits = limits
        self.waiting: deque[Sequence] = deque()
        self.running: list[Sequence] = []
        # Programs that cannot share a step take turns.
        self._turns = deque((self._logits_batch, self._token_batch, self._guided_batch))

    def add(self, sequence: Sequence) -> None:
        self.waiting.append(sequence)

    def remove(self, sequence: Sequence) -> None:
        """Frees a finished sequence's units, unless a step in flight still touches them."""
        if sequence in self.waiting:
            self.waiting.remove(sequence)
        if sequence in self.running and not sequence.n_in_flight:
            self.running.remove(sequence)
            assert sequence.seat is not None, "running sequences hold a seat"
            self.state.close_seat(sequence.seat)
            sequence.seat = None

    def next_batch(self) -> Batch | None:
        """The next step's work, or None if no sequence has a row to submit."""
        self._admit()
        for _ in range(len(self._turns)):
            batch = self._turns[0]()
            self._turns.rotate(-1)
            if batch:
                return batch
        return None

    def _admit(self) -> None:
        while self.waiting:
            seat = self.state.open_seat(self.waiting[0].max_rows)
            if seat is None:
                return
            sequence = self.waiting.popleft()
            sequence.seat = seat
            self.running.append(sequence)

    def _logits_batch(self) -> Batch | None:
        """One request that asks for every prompt row's logits."""
        for s in self._live():
            if s.request.all_logits and s.n_prompt_left:
                n = min(s.n_prompt_left, self.limits.chunk)
                return Batch(ALL_LOGITS, (Work(s, n, n),))
        return None

    def _guided_batch(self) -> Batch | None:
        """The next row of every request that a grammar guides; the host needs its logits."""
        work = tuple(Work(s, 1, 1) for s in self._live() if s.is_guided and s.can_decode)
        return Batch(GUIDED, work) if work else None

    def _token_batch(self) -> Batch | None:
        live = [s for s in self._live() if not s.request.all_logits]
        decode = [Work(s, 1, 1) for s in live if s.can_decode and not s.is_guided]
        prefill = self._prefill(live, self.limits.chunk - len(decode))
        if not decode and not prefill:
            return None
        return Batch(MIXED if prefill else DECODE, (*decode, *prefill))

    def _live(self) -> list[Sequence]:
        return [s for s in self.running if not s.is_finished]

    @staticmethod
    def _prefill(live: list[Sequence], budget: int) -> list[Work]:
        work: list[Work] = []
        for s in live:
            n = min(s.n_prompt_left, budget)
            if n:
                work.append(Work(s, n, int(n == s.n_prompt_left and not s.is_guided)))
                budget -= n
        return work


def build_step(batch: Batch, state: StateManager, ordinal: int) -> Step:
    """The batch as a step. Takes the units that its rows will be written to."""
    step = Step(ordinal=ordinal)
    for number, work in enumerate(batch.work):
        _add_work(step, number, work, state)
    return step


def _add_work(step: Step, number: int, work: Work, state: StateManager) -> None:
    s, first, held = work.sequence, len(step.rows), work.sequence.n_rows
    assert s.seat is not None, "scheduled sequences hold a seat"
    step.updates += state.grow(s.seat, held + work.n_rows)
    step.rows += [s.row(number, held + i) for i in range(work.n_rows)]
    groups = state.words(s.seat, held)
    state.advance(s.seat)
    step.sequences.append(StepSequence(first_row=first, rows=work.n_rows, groups=groups, sampling=number))
    step.sampling.append(s.request.sampling.words())
    sampled = range(work.n_rows - work.n_outputs, work.n_rows)  # the last rows
    step.outputs += [(first + i, number, held + i + 1) for i in sampled]
