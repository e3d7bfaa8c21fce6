"""The scheduler: decode rows first, then prefill chunks, within a budget of rows per step.

Measured times bound the prefill rows of a step (`PrefillBudget`) and the steps in flight (`RunAhead`);
`Timeouts` lists the sequences past a deadline.
"""

from __future__ import annotations

from bisect import insort
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from heapq import heappop, heappush
from math import inf
from time import perf_counter

from camelid.backends.base import Capabilities, Result
from camelid.engine.adapters import AdapterSlots
from camelid.engine.allocation import NO_UPDATE, PAGED
from camelid.engine.batch import Batch, ScheduledSequence
from camelid.engine.kv_cache import KVCacheManager
from camelid.engine.media import media_at
from camelid.engine.pace import MIN_PREFILL_ROWS, PrefillBudget
from camelid.engine.programs import (
    ALL_LOGITS,
    CANDIDATES,
    DECODE,
    ENCODE,
    ENTRIES,
    GUIDED,
    INJECTED,
    INJECTED_LOGITS,
    MIXED,
    VERIFY,
    Limits,
    program_key,
)
from camelid.engine.sequence import Sequence
from camelid.errors import RequestError

PREFILLS = (MIXED, ALL_LOGITS, INJECTED, INJECTED_LOGITS)  # programs with prompt rows


class Scheduler:
    """Two queues in order of priority, then arrival: `waiting` without an allocation, `running` with one.

    If units run out, or a sequence of higher priority waits for units, the last running sequence is
    preempted: it waits again, and its rows are recomputed or found in the prefix cache.
    """

    def __init__(self, state: KVCacheManager, limits: Limits, n_stages: int = 1) -> None:
        self.state = state
        self.limits = limits
        self.n_stages = n_stages
        # Of the programs with prompt rows, whose rows differ in time: one has logits of each row.
        self.prefill_budgets = {program: PrefillBudget(limits.step_s) for program in PREFILLS}
        self.waiting: list[Sequence] = []
        self.running: list[Sequence] = []
        # Running sequences whose token history the engine has not yet written to the device.
        self.newly_running: deque[Sequence] = deque()
        self.n_preempted = 0
        self.adapters = AdapterSlots()
        # (id, n_freed) of the sequence that could not be admitted. It is retried only after a unit or a
        # page-table row has been freed, since each attempt searches the prefix cache.
        self._blocked: tuple[int, int] | None = None
        n_paged = sum(s.kind in PAGED for s in state.states)
        keys = {p: program_key(p, limits, state.page_rows, n_paged=n_paged) for p in ENTRIES}
        self._most_updates = {program: key.capacity.updates for program, key in keys.items()}
        # One step runs one program; the programs take turns.
        self._rotation = deque(
            (ALL_LOGITS, INJECTED_LOGITS, INJECTED, ENCODE, MIXED, CANDIDATES, GUIDED, VERIFY)
        )

    @property
    def can_run_ahead(self) -> bool:
        """True if more than `BUSY_STEPS` may be in flight: every running sequence can run ahead.

        A recurrent allocation keeps the states of its last two steps only.
        """
        return not self.has_recurrent and all(s.can_run_ahead for s in self.running)

    @property
    def has_recurrent(self) -> bool:
        return self.state.has_recurrent

    def add(self, sequence: Sequence) -> None:
        """Queues a sequence without an allocation."""
        insort(self.waiting, sequence, key=lambda s: s.order)

    def add_running(self, sequence: Sequence) -> None:
        """Adds a sequence that has an allocation and a slot for its adapter."""
        insort(self.running, sequence, key=lambda s: s.order)
        self.newly_running.append(sequence)

    def remove(self, sequence: Sequence) -> None:
        """Removes a finished sequence and frees its units, unless a step in flight still uses them."""
        if sequence in self.waiting:
            self.waiting.remove(sequence)
        if sequence in self.running and not sequence.n_in_flight:
            self._free(sequence)

    def _free(self, s: Sequence) -> None:
        """Frees a sequence's allocation; valid rows stay in the prefix cache."""
        self.running.remove(s)
        assert s.allocation is not None, "a running sequence has an allocation"
        keeps = s.request.reuses and s.outbox.error is None and not s.is_failed
        self.state.free(s.allocation, s.key_ids, s.n_valid, keeps=keeps)
        if s.request.adapter:
            self.adapters.release(s.request.adapter)
        s.detach()

    def preempt(self, sequence: Sequence) -> None:
        """Preempts a sequence: it waits again as soon as its steps in flight have retired."""
        sequence.is_preempted = True
        self.requeue_if_preempted(sequence)

    def requeue_if_preempted(self, sequence: Sequence) -> None:
        """Returns a preempted sequence to the waiting queue once none of its rows is in flight."""
        if sequence.is_preempted and not sequence.n_in_flight:
            self._free(sequence)
            self.add(sequence)

    # Batches

    def next_batch(self) -> Batch | None:
        """The next step's batch, or None if no sequence has a row to submit."""
        needed = self._needed_programs()
        for _ in range(len(self._rotation)):
            program = self._rotation[0]
            self._rotation.rotate(-1)
            batch = self._batch(program) if program in needed else None
            if batch and batch.scheduled:
                return batch
        return None

    def _needed_programs(self) -> set[str]:
        """The programs of the running sequences; most prefill through `mixed`."""
        mixed = {MIXED} if any(s.request.generates for s in self.running) else set[str]()
        return mixed | {*map(_next_program, self.running)}

    def admit(self) -> None:
        """Allocates state for waiting sequences, in order, while units are free."""
        while self.waiting and self._blocked != (self.waiting[0].id, self.state.n_freed):
            first = self.waiting[0]
            request = first.request
            n_source, reuses = len(request.source_ids), request.uses_prefix_cache
            allocation = (
                self.state.allocate(first.key_ids, salt=first.salt, reuses=reuses, static_rows=n_source)
                if self.takes_slot(first)
                else None
            )
            if allocation:
                self.waiting.pop(0)
                first.attach(allocation)
                self.add_running(first)
                continue
            self.drop_slot(first)
            if not self._preempt_lower_priority(first):
                self._blocked = first.id, self.state.n_freed

    def takes_slot(self, s: Sequence) -> bool:
        """Gives a sequence a slot for its adapter. False while all slots are in use."""
        slot = self.adapters.acquire(s.request.adapter) if s.request.adapter else 0
        s.adapter_slot = slot or 0
        return slot is not None

    def drop_slot(self, s: Sequence) -> None:
        """Takes a slot back from a sequence that got no allocation."""
        if s.request.adapter and s.adapter_slot:
            self.adapters.release(s.request.adapter)
            s.adapter_slot = 0

    def speculating(self) -> Iterator[Sequence]:
        """The schedulable sequences that need drafts."""
        return (s for s in self._schedulable() if s.proposer and s.can_decode)

    @property
    def has_late(self) -> bool:
        """True if a running sequence waits for its mask."""
        return any(s.late for s in self.running)

    def late_rows(self) -> Iterator[tuple[ScheduledSequence, Result]]:
        """The retired rows whose masks are ready by now, each once."""
        for s in self._schedulable():
            if s.late and s.constraint and s.constraint.ready():
                rows, s.late = s.late, None
                yield ScheduledSequence(s, 1, 1, NO_UPDATE), rows

    def _preempt_lower_priority(self, waiting: Sequence) -> bool:
        """Preempts the last running sequence of a lower priority.

        Returns True if the preempted sequence's units are already free.
        """
        last = self.running[-1] if self.running else None
        if last is None or last.request.priority >= waiting.request.priority or not last.is_schedulable:
            return False
        self._preempt_victim(last)
        return last.allocation is None

    def _preempt_victim(self, victim: Sequence) -> None:
        """Preempts a sequence and counts it."""
        self.n_preempted += 1
        self.preempt(victim)

    def _batch(self, program: str) -> Batch:
        """The step's batch of one program, perhaps empty; `mixed` without prefill rows becomes `decode`."""
        batch = Batch(program)
        if program == MIXED:
            self._add_generated(batch, DECODE)
            n = len(batch.scheduled)
            self._add_prefill(batch)
            if len(batch.scheduled) == n:
                batch.program = DECODE
        elif program in (ALL_LOGITS, INJECTED_LOGITS):
            self._add_logits(batch)
        elif program == INJECTED:
            self._add_images(batch)
        elif program == ENCODE:
            self._add_encoded(batch)
        else:
            self._add_generated(batch, program)
        return batch

    def _schedulable(self) -> Iterator[Sequence]:
        """The running sequences that a step may include; sequences may be preempted during the iteration."""
        return (s for s in list(self.running) if s.is_schedulable)

    def _add_logits(self, batch: Batch) -> None:
        """Adds rows of one request with `all_logits`: a chunk, or as many as fit the prefill budget."""
        budget = self.prefill_budgets[ALL_LOGITS]
        for s in self._schedulable():
            if _next_program(s) == batch.program and s.n_prefill:
                n = min(s.n_text_rows, self.limits.chunk)
                n = max(budget.rows(s.n_rows, self._prefill_s(budget), n), min(n, MIN_PREFILL_ROWS))
                n = n or self._n_image_rows(s, self.limits.image_chunk)
                batch.prefill_depth = s.n_rows
                self._add(batch, s, n, n)
                return

    def _add_images(self, batch: Batch) -> None:
        """Adds rows of images: of one sequence those of one image."""
        free_rows: int = self.limits.image_chunk
        for s in self._schedulable():
            n = self._n_image_rows(s, free_rows) if _next_program(s) == INJECTED else 0
            depth = s.n_rows
            if n and self._add(batch, s, n, int(n == s.n_prefill and not s.has_own_program)):
                free_rows -= n
                batch.prefill_depth = max(batch.prefill_depth, depth)

    def _n_image_rows(self, s: Sequence, free_rows: int) -> int:
        """Rows of a sequence's image in a step; an image that runs in one step is never split."""
        image = media_at(s.request.media, s.n_rows)
        n = min(image.end - s.n_rows, s.n_prefill) if image else 0
        return n if n <= free_rows else 0 if self.limits.image_rows else free_rows

    def _add_encoded(self, batch: Batch) -> None:
        """Adds whole texts, in order, as far as a step has rows for them: prompts, or sources of decoders."""
        free_rows = self.limits.encode_chunk
        for s in self._schedulable():
            if s.awaits_encoder and len(s.request.source_ids) <= free_rows:
                free_rows -= len(s.request.source_ids) if self._add(batch, s, 0, 0) else 0
            elif s.request.encodes and 0 < s.n_prefill <= free_rows:
                n = s.n_prefill
                free_rows -= n if self._add(batch, s, n, s.request.n_encoded) else 0

    def _prefill_s(self, budget: PrefillBudget) -> float:
        """The time for prefill rows in the next step: bounded while a sequence generates, by any program."""
        return budget.seconds if any(not s.n_prefill for s in self._schedulable()) else inf

    def _add_generated(self, batch: Batch, program: str) -> None:
        """Adds the next row, and the drafts, of every sequence of this program; over several stages, of a
        share of the running sequences, so that each stage has a step."""
        share = -(-len(self.running) // self.n_stages)
        for s in self._schedulable():
            if len(batch.scheduled) == share:
                return
            if s.program == program and s.can_decode and s.request.generates:
                n = 1 + len(s.drafts)
                self._add(batch, s, n, n)

    def _add_prefill(self, batch: Batch) -> None:
        """Adds prompt rows up to the chunk; up to the prefill budget while sequences generate."""
        budget = self.prefill_budgets[MIXED]
        free_rows: int = self.limits.chunk - len(batch.scheduled)
        seconds, least = self._prefill_s(budget), MIN_PREFILL_ROWS
        for s in self._schedulable():
            rows = min(max(budget.rows(s.n_rows, seconds, free_rows), least), free_rows)
            n, depth = self._n_prefill_rows(s, free_rows, rows), s.n_rows
            if n and self._add(batch, s, n, int(n == s.n_prefill and not s.has_own_program)):
                free_rows, seconds, least = free_rows - n, seconds - n * budget.row_s(depth), 0
                batch.prefill_depth = max(batch.prefill_depth, depth)

    def _n_prefill_rows(self, s: Sequence, free_rows: int, prefill_rows: int) -> int:
        """Prompt rows of a sequence in a step, up to its next checkpoint.

        An atomic prompt ignores the prefill budget and is never split.
        """
        n = s.n_text_rows if s.request.generates and not s.awaits_encoder else 0
        if s.is_atomic_prefill:
            return n if n <= free_rows else 0
        assert s.allocation is not None, "a schedulable sequence has an allocation"
        return self.state.rows_to_checkpoint(s.allocation, s.n_rows, max(min(n, prefill_rows), 0))

    def _add(self, batch: Batch, s: Sequence, n_rows: int, n_outputs: int) -> bool:
        """Adds rows of a sequence if units are available, or can be freed by preempting the last sequences.

        Returns False if the rows were not added.
        """
        allocation = s.allocation
        assert allocation is not None, "a running sequence has an allocation"
        end = s.n_rows + n_rows
        if (
            batch.n_updates + self.state.most_updates(allocation, s.n_rows, end)
            > self._most_updates[batch.program]
        ):
            return False  # the program has no capacity left for the sequence's page-table updates
        while (update := self.state.grow(allocation, s.n_rows, end)) is None:
            victim = self._victim(batch)
            if victim is None or (victim is s and s.n_in_flight):
                return False  # nothing can be preempted now: retry in a later step
            self._preempt_victim(victim)
            if victim is s:
                return False
        batch.n_updates += len(update.updates)
        batch.scheduled.append(ScheduledSequence(s, n_rows, n_outputs, update))
        return True

    def _victim(self, batch: Batch) -> Sequence | None:
        """The sequence to preempt: the last running sequence outside the batch.

        None while a preempted or finished sequence still has its units, which its last step in flight frees.
        None also for a batch with copies: preemption could free a copy's source and reuse it as a
        destination.
        """
        if any(s.is_preempted or s.is_finished for s in self.running):
            return None
        if any(item.cache_update.copies for item in batch.scheduled):
            return None
        in_batch = {item.sequence.id for item in batch.scheduled}
        return next((s for s in reversed(self.running) if s.id not in in_batch), None)


def _next_program(s: Sequence) -> str:
    """The program of the sequence's next rows; most prompts run in `mixed`."""
    if s.request.encodes or s.awaits_encoder:
        return ENCODE
    if s.request.all_logits:
        return INJECTED_LOGITS if s.is_at_image else ALL_LOGITS
    return INJECTED if s.is_at_image else s.program


def check_depth(max_in_flight: int | None, capabilities: Capabilities) -> int:
    """The largest number of steps in flight: `max_in_flight`, or the backend's if None.

    Raises RequestError for a value that the backend does not allow.
    """
    most = capabilities.max_in_flight
    if max_in_flight is None:
        return most
    if type(max_in_flight) is not int or not 1 <= max_in_flight <= most:
        raise RequestError(
            f"max_in_flight is {max_in_flight!r}, expected an integer from 1 to {most}, the most that "
            f"backend {capabilities.name!r} allows",
            field="max_in_flight",
        )
    return max_in_flight


class Timeouts:
    """The deadlines of all requests in a heap, in seconds of `clock`.

    An entry refers to its request by id, so that an ended request is not kept alive until its deadline.
    """

    def __init__(self, clock: Callable[[], float] = perf_counter) -> None:
        self._clock = clock
        self._deadlines: list[tuple[float, int, bool]] = []  # time, sequence id, is for the first step

    def add(self, s: Sequence) -> None:
        """Adds the request's deadlines."""
        for seconds, is_queue in ((s.request.queue_timeout_s, True), (s.request.timeout_s, False)):
            if seconds is not None:
                heappush(self._deadlines, (s.clock.submitted + seconds, s.id, is_queue))

    def due(self, sequences: Mapping[int, Sequence]) -> Iterator[Sequence]:
        """Yields the sequences past a deadline: of their end, or of a first step that was not built yet."""
        while self._deadlines and self._deadlines[0][0] <= self._clock():
            _, number, is_queue = heappop(self._deadlines)
            s = sequences.get(number)
            if s and not s.is_finished and not (is_queue and s.n_steps):
                yield s
