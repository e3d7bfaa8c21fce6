"""Waist 1: `submit`, `step`, `cancel`. A step is submitted, then retired; only retired ids are streamed.

While the device works on a step, the next ones are already submitted (up to the backend's `max_in_flight`;
more than two only of short ones, of which the older half is retired at once): a row whose id the host has
not read yet takes it from the device's ring. What a step computed for a sequence that has meanwhile ended is
discarded when it retires.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from collections.abc import Sequence as Seq
from itertools import count, islice
from time import perf_counter
from typing import Any

from camelid.backends.base import Backend, Program, Result
from camelid.engine.admission import check_choice, check_depth, check_ids, check_request, most_tokens
from camelid.engine.kv_cache import KVCacheManager
from camelid.engine.metrics import Counters, EngineStats, StepHook, StepStats, notify
from camelid.engine.output_processor import OutputProcessor
from camelid.engine.pending_step import PendingStep
from camelid.engine.programs import DECODE, MIXED, VERIFY, Limits, ProgramTable
from camelid.engine.results import Clock, FinishReason, Outbox
from camelid.engine.scheduler import Batch, ScheduledSequence, Scheduler, build_step
from camelid.engine.sequence import Request, Sequence
from camelid.engine.speculative import drafts_of
from camelid.engine.state_transfer import ExportedState, export_rows, import_rows, write_history
from camelid.engine.step_budget import BUSY_STEPS, RunAhead
from camelid.engine.stream import Stream
from camelid.engine.timeouts import Timeouts
from camelid.errors import PlanError, RequestError
from camelid.plan.step import FROM_RING, Step, encode_step
from camelid.sampling.host import NeedsAllLogits


class StepEngine:
    """Runs requests on an opened backend. Not for several threads; any number of tasks may consume."""

    def __init__(
        self,
        backend: Backend,
        programs: ProgramTable,
        state: KVCacheManager,
        *,
        limits: Limits,
        vocab_size: int,
        max_in_flight: int | None = None,
        clock: Callable[[], float] = perf_counter,
    ) -> None:
        self.backend = backend
        self.programs = programs
        self.vocab_size = vocab_size
        self.limits = limits
        self.hooks: list[StepHook] = []
        self.counters = Counters()
        capabilities = backend.capabilities()
        self.max_in_flight = check_depth(max_in_flight, capabilities)
        self.state = state
        self._scheduler = Scheduler(state, limits)
        self._outputs = OutputProcessor(capabilities.name, vocab_size, self.counters)
        self._clock = clock
        self._timeouts = Timeouts(clock)
        self._ahead = RunAhead(self.max_in_flight)
        self._pending: deque[PendingStep] = deque()
        self._sequences: dict[int, Sequence] = {}
        self._ids = count(1)
        self._retired = 0.0
        self._turn = asyncio.Lock()  # one task steps at a time; uncontended it never touches a loop

    @property
    def context(self) -> int:
        """The most tokens that prompt and answer of one request may have together."""
        return self.state.max_rows

    @property
    def is_idle(self) -> bool:
        """No request, no step in flight, every unit free or cached."""
        return not self._sequences and not self._pending and self.state.is_idle

    @property
    def n_running(self) -> int:
        return len(self._scheduler.running)

    @property
    def n_waiting(self) -> int:
        return len(self._scheduler.waiting)

    def stats(self) -> EngineStats:
        """What runs and waits, and the bytes of its state."""
        state = self.state
        return EngineStats(
            n_running=self.n_running,
            n_waiting=self.n_waiting,
            held_bytes=state.held_bytes,
            cached_bytes=state.cached_bytes,
            total_bytes=state.total_bytes,
        )

    def submit(self, request: Request) -> Stream[Any, Any]:
        """Queues a request. Raises RequestError or ContextOverflowError if it can never be served."""
        check_request(request, self.vocab_size, self.limits, self.programs)
        n_tokens, context = most_tokens(request, self.context), self.context
        limit = min(request.n_prompt + n_tokens, context)
        sequence = Sequence(
            id=next(self._ids), request=request, vocab_size=self.vocab_size, max_tokens=n_tokens, limit=limit,
            clock=Clock(self._clock),
        )  # fmt: skip
        self._scheduler.add(sequence)
        self._timeouts.add(sequence)
        self.counters.requests += 1
        return self._stream(sequence)

    async def export_rows(self, token_ids: Seq[int], salt: str = "") -> ExportedState:
        """The state of as many of these tokens as the prefix cache knows."""
        check_ids(token_ids, self.vocab_size)
        async with self._turn:
            return await export_rows(self.backend, self.state, token_ids, salt)

    async def import_rows(self, token_ids: Seq[int], exported: ExportedState, salt: str = "") -> int:
        """Puts exported state into the prefix cache; how many rows are known then.

        RequestError if there is no room now, or it is not the state of these tokens.
        """
        check_ids(token_ids, self.vocab_size)
        async with self._turn:
            return await import_rows(self.backend, self.state, token_ids, exported, salt)

    def cached_rows(self, token_ids: Seq[int], salt: str = "") -> int:
        """Of how many of these tokens the prefix cache knows the state."""
        check_ids(token_ids, self.vocab_size)
        return self.state.find(token_ids, salt).n_rows

    def _stream(self, s: Sequence) -> Stream[Any, Any]:
        self._sequences[s.id] = s
        return Stream(self, s.id, s.outbox)

    def cancel(self, id: int) -> None:  # noqa: A002
        """Ends a request: no further row of it is submitted. Unknown and finished ids are ignored."""
        if id in self._sequences:
            self._end(self._sequences[id], "cancelled")

    def cancel_all(self) -> None:
        """Ends every request."""
        for id in list(self._sequences):  # noqa: A001
            self.cancel(id)

    async def fork(self, id: int, *, choice: int) -> Stream[Any, Any]:  # noqa: A002
        """A second stream that continues a running request's tokens with draws of its own.

        The streams share cache pages until one writes to them. A fork without a free allocation waits
        like any request. RequestError for a request that has ended or that asks for logits.
        """
        check_choice(choice)
        async with self._turn:
            parent = self._sequences.get(id)
            while parent and parent.n_in_flight and not parent.is_finished:
                await self._retire()
            if parent is None or parent.is_finished or parent.request.all_logits:
                raise RequestError(f"request {id} does not run, so it cannot be forked", field="id")
            return self._fork(parent, choice)

    def _fork(self, parent: Sequence, choice: int) -> Stream[Any, Any]:
        child = parent.fork(next(self._ids), choice)
        allocation = parent.allocation and self.state.fork(parent.allocation, parent.n_rows)
        if allocation:
            child.attach(allocation)
            child.n_found = 0  # by its parent, not in the prefix cache
            self._scheduler.run_at_once(child)
        else:
            self._scheduler.add(child)
        self._timeouts.add(child)
        self.counters.forks += 1
        return self._stream(child)

    async def step(self) -> bool:
        """Submits what can be submitted, then retires the older half. False if there was nothing to do."""
        async with self._turn:
            return await self._step()

    async def serve(self, outbox: Outbox) -> None:
        """Steps until the outbox has an event or is closed."""
        while not outbox.events and outbox.is_open:
            async with self._turn:  # another task's step may have served it meanwhile
                if outbox.events or not outbox.is_open or await self._step():
                    continue
                if outbox.is_open:  # a step that could not be submitted closes it with its error
                    raise PlanError("the engine is idle, but a request waits: its units leaked", op="step")

    async def settle(self, id: int) -> None:  # noqa: A002
        """Retires steps until none in flight belongs to a request that has ended."""
        async with self._turn:
            while id in self._sequences and self._sequences[id].is_finished:
                await self._retire()

    async def _step(self) -> bool:
        for sequence in self._timeouts.due(self._sequences):
            self.counters.timeouts += 1
            self._end(sequence, "timeout")
        n_failed = self.counters.failed_steps
        for _ in range(2):  # who was sent away or failed made room for those who wait
            await self._prepare()
            self._fill()
            if self._pending:
                await self._retire()
                return True
        return self.counters.failed_steps > n_failed

    async def _prepare(self) -> None:
        """What must be awaited before a step is built: the history of found prompts, and drafts."""
        scheduler = self._scheduler
        scheduler.admit()
        while scheduler.newly_running:  # one whose history fails has no allocation then, and passes
            await self._isolated(scheduler.newly_running[0], self._start)
        for s in scheduler.speculating():
            await self._isolated(s, self._propose)

    async def _isolated(self, s: Sequence, work: Callable[[Sequence], Awaitable[None]]) -> None:
        """What goes wrong with work for one sequence ends this sequence only."""
        try:
            await work(s)
        except Exception as error:
            self._end(s, "error", error)

    async def _start(self, s: Sequence) -> None:
        """After the first newcomer took an allocation. It stays the first, should this task be cancelled."""
        if s.allocation and s.n_rows and s.words.penalty_last_n:
            await write_history(self.backend, self.state, s.allocation, s.token_ids[: s.n_rows])
        self._scheduler.newly_running.popleft()
        self.counters.cached_rows += s.n_found
        self.counters.prefix_hits += s.n_found > 0

    async def _propose(self, s: Sequence) -> None:
        assert s.proposer is not None, "only sequences that speculate come here"
        most = min(self.limits.drafts, s.limit - len(s.token_ids) - 1)
        if most > 0:
            s.drafts = await drafts_of(s.proposer, s.token_ids, most, s.request.sampling, self.vocab_size)

    @property
    def _has_room(self) -> bool:
        """Whether a further step may be submitted.

        More than a device needs only where all generate, and nobody waits for a row of its own: prompts take
        long, and of recurrent state an allocation keeps what two steps leave.
        """
        n = len(self._pending)
        if n < min(BUSY_STEPS, self.max_in_flight):
            return True
        if n >= self._ahead.steps() or self.state.has_recurrent or self._scheduler.has_dependent_rows:
            return False
        return all(flight.batch.program == DECODE for flight in self._pending)

    def _fill(self) -> None:
        while self._has_room:
            batch = self._scheduler.next_batch()
            if batch is None:
                return
            self._submit(batch)

    def _submit(self, batch: Batch) -> None:
        now = self._clock()
        for work in batch.work:
            work.sequence.clock.start()
        try:
            step = build_step(batch, self.state, self.counters.steps_submitted)
            program = self.programs.smallest(batch.program, step)
            ticket = self.backend.run(program, encode_step(step, program.plan.layout))
        except Exception as error:
            self._fail(batch, error)
            return
        for work in batch.work:
            work.sequence.submitted(work.n_rows, work.n_outputs)
        decode = sum(work.n_rows for work in batch.work if work.sequence.n_rows > work.sequence.n_prompt)
        self._pending.append(PendingStep(batch, ticket, now, decode))
        self._count(batch, step, program, decode)

    def _count(self, batch: Batch, step: Step, program: Program, decode: int) -> None:
        counters = self.counters
        counters.steps_submitted += 1
        counters.max_in_flight = max(counters.max_in_flight, len(self._pending))
        counters.decode_rows += decode
        counters.prefill_rows += len(step.rows) - decode
        counters.unused_rows += program.key.capacity.rows - len(step.rows)
        counters.ring_rows += sum(row.source == FROM_RING for row in step.rows)
        counters.copied_units += len(step.copies)
        counters.drafted += len(step.rows) - len(batch.work) if batch.program == VERIFY else 0
        counters.preemptions = self._scheduler.n_preempted
        counters.evicted_units = self.state.n_evicted

    async def _retire(self) -> None:
        """Reads the older half of the steps, while the others run. All stay in flight if this task is
        cancelled while it waits."""
        due = list(islice(self._pending, (len(self._pending) + 1) // 2))
        for flight in reversed(due):  # the last first: there is one wait for all
            await flight.read(self.backend)
        now = self._clock()
        seconds, self._retired = (now - max(due[0].submitted, self._retired)) / len(due), now
        for flight in due:
            self._pending.popleft()
            self._note_time(flight, seconds)
            for work in flight.batch.work:
                work.sequence.retired(work.n_rows, work.n_outputs)
            if flight.error:
                self._fail(flight.batch, flight.error)
            else:
                self._deliver(flight.batch, flight.result or ())

    def _note_time(self, flight: PendingStep, seconds: float) -> None:
        """A step took the time since it was submitted, or since the one before it was done."""
        self.counters.steps_retired += 1
        self.counters.retired_decode_rows += flight.n_decode
        n_rows = sum(work.n_rows for work in flight.batch.work)
        if flight.batch.program == MIXED:
            self._scheduler.pace.note(n_rows, seconds)
        if flight.batch.program == DECODE:
            self._ahead.note(seconds)
        if self.hooks:
            notify(self.hooks, StepStats(flight.batch.program, len(flight.batch.work), n_rows, seconds))

    def _fail(self, batch: Batch, error: Exception) -> None:
        """Ends the sequences of a step that failed, and no others."""
        self.counters.failed_steps += 1
        for work in batch.work:
            work.sequence.is_failed = True
            self._end(work.sequence, "error", error)

    def _deliver(self, batch: Batch, result: Result) -> None:
        at = 0
        for work in batch.work:
            rows = result[at : at + work.n_outputs]
            at += work.n_outputs
            if work.sequence.is_finished:
                self.counters.discarded_rows += work.n_rows
                self._release(work.sequence)
            else:
                self._take(work, rows)

    def _take(self, work: ScheduledSequence, rows: Result) -> None:
        """Results of one sequence; whatever goes wrong with them ends this sequence only."""
        s = work.sequence
        try:
            taken = self._outputs.take(s, rows, work.n_outputs)
        except NeedsAllLogits:
            self._rerun(s)
            return
        except Exception as error:
            self._end(s, "error", error)
            return
        if taken.n_rows < work.n_outputs:
            self._reject_rows(work, work.n_outputs - taken.n_rows)
        if taken.reason:
            self._end(s, taken.reason)
            return
        self._settle(s)

    def _rerun(self, s: Sequence) -> None:
        """The row's candidates prove no draw: it runs once more, for all its logits."""
        self.counters.full_logits_rows += 1
        s.needs_all = True
        s.take_back(1)
        assert s.allocation is not None, "a sequence whose row has just retired holds an allocation"
        self.state.retreat(s.allocation)
        self._scheduler.requeue_if_idle(s)

    def _reject_rows(self, work: ScheduledSequence, n_rejected: int) -> None:
        """Rows of wrong drafts hold nothing; recurrent state goes back the whole step."""
        s = work.sequence
        if self.state.has_recurrent:
            assert s.allocation is not None, "a sequence whose rows have just retired holds an allocation"
            self.state.retreat(s.allocation)
        s.take_back(work.n_rows if self.state.has_recurrent else n_rejected)

    def _settle(self, s: Sequence) -> None:
        """Tells the cache what has retired, makes room in a full context, and lets a leaving one go."""
        assert s.allocation is not None, "a sequence whose rows have just retired holds an allocation"
        self.state.settle(s.allocation, s.token_ids, s.n_valid)
        if s.shifts and len(s.token_ids) == s.limit:
            self._scheduler.evict(s)
            s.shift()
            self.counters.shifted += 1
        else:
            self._scheduler.requeue_if_idle(s)

    def _end(self, s: Sequence, reason: FinishReason, error: Exception | None = None) -> None:
        s.finish(reason, error)
        self._release(s)

    def _release(self, s: Sequence) -> None:
        """Forgets an ended sequence, once none of its rows is in flight."""
        self._scheduler.remove(s)
        if not s.n_in_flight:
            self._sequences.pop(s.id, None)
