"""The engine loop: `submit`, `step`, `cancel`, `fork` (waist 1 of README.md).

A step is submitted, then retired; only retired token ids are streamed. Up to `max_in_flight` steps run ahead:
a row whose token id the host has not read yet reads it from the device's `ring` state. More than two steps
run ahead only where all are short; the older half then retires together. The rows of a sequence that ended
while they were in flight are discarded.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from itertools import count, islice
from time import perf_counter
from typing import Any

from camelid.backends.base import Backend
from camelid.engine.adapters import names_of
from camelid.engine.batch import Batch, OutputProcessor, PendingStep, build_step, program_of, submit_batch
from camelid.engine.cached_rows import CachedRows
from camelid.engine.delivery import Delivery
from camelid.engine.kv_cache import KVCacheManager
from camelid.engine.metrics import Counters, EngineStats, StepHook, StepStats, notify
from camelid.engine.pace import RunAhead
from camelid.engine.programs import DECODE, ENCODE, VERIFY, Limits, ProgramTable
from camelid.engine.recovery import Recovery
from camelid.engine.request import Request, check_choice, check_request, max_answer_tokens
from camelid.engine.results import Clock, FinishReason, Outbox
from camelid.engine.scheduler import Scheduler, Timeouts, check_depth
from camelid.engine.sequence import Sequence
from camelid.engine.speculative import propose_drafts
from camelid.engine.state_transfer import write_history
from camelid.engine.stream import Stream
from camelid.errors import DeviceLostError, PlanError, RequestError
from camelid.plan.step import encode_step

LATE_S = 0.002  # between two looks for a mask when no step can be submitted


class StepEngine(CachedRows):
    """Runs requests on an open backend. Not thread-safe; any number of asyncio tasks may consume streams."""

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
        self.backend, self.programs, self.state = backend, programs, state
        self.vocab_size, self.limits = vocab_size, limits
        self.hooks, self.counters = list[StepHook](), Counters()
        capabilities = backend.capabilities()
        self.max_in_flight = check_depth(max_in_flight, capabilities)
        self._n_stages = min(capabilities.n_stages, self.max_in_flight)
        self._scheduler = Scheduler(state, limits, self._n_stages)
        self.adapters = self._scheduler.adapters
        outputs = OutputProcessor(capabilities.name, vocab_size, self.counters)
        self._delivery = Delivery(
            state, self._scheduler, outputs, self.counters, end=self._end, release=self._release
        )
        self._clock, self._timeouts = clock, Timeouts(clock)
        self._ahead = RunAhead(self.max_in_flight, self._n_stages)
        self._pending: deque[PendingStep] = deque()
        self._sequences: dict[int, Sequence] = {}
        self._ids, self._retired = count(1), 0.0
        # one task steps at a time; without contention the lock needs no event loop
        self._turn = asyncio.Lock()
        self.recovery = Recovery(
            backend, state, self._scheduler, self.counters, turn=self._turn, pending=self._pending,
            sequences=self._sequences, end=self._end, release=self._release,
        )  # fmt: skip

    @property
    def context(self) -> int:
        """The largest sum of prompt and answer tokens of one request."""
        return self.state.max_rows

    @property
    def is_idle(self) -> bool:
        """True if there is no request and no step in flight, and every unit is free or cached."""
        return not self._sequences and not self._pending and self.state.is_idle

    @property
    def is_busy(self) -> bool:
        """True while a request runs or waits, or a step is in flight."""
        return bool(self._sequences or self._pending)

    @property
    def n_running(self) -> int:
        return len(self._scheduler.running)

    @property
    def n_waiting(self) -> int:
        return len(self._scheduler.waiting)

    def stats(self) -> EngineStats:
        """Running and waiting requests, and the bytes of state."""
        state = self.state
        return EngineStats(
            n_running=self.n_running, n_waiting=self.n_waiting, held_bytes=state.held_bytes,
            cached_bytes=state.cached_bytes, total_bytes=state.total_bytes,
            running_adapters=names_of(s.request.adapter for s in list(self._scheduler.running)),
            waiting_adapters=names_of(s.request.adapter for s in list(self._scheduler.waiting)),
        )  # fmt: skip

    def submit(self, request: Request) -> Stream[Any, Any]:
        """Queues a request.

        Raises RequestError or ContextOverflowError for a request that can never be served.
        """
        check_request(request, self.vocab_size, self.limits, self.programs)
        n_tokens, context = max_answer_tokens(request, self.context), self.context
        limit = min(request.n_prompt + n_tokens, context)
        sequence = Sequence(
            id=next(self._ids), request=request, vocab_size=self.vocab_size, max_tokens=n_tokens, limit=limit,
            is_fed=self._n_stages == 1, clock=Clock(self._clock),
        )  # fmt: skip
        self._scheduler.add(sequence)
        self._timeouts.add(sequence)
        self.counters.requests += 1
        return self._stream(sequence)

    def prompt_rows(self, id: int) -> tuple[int, int] | None:
        """Cached and computed rows of a running request's prompt; None before its first step."""
        s = self._sequences.get(id)
        is_begun = s and not s.is_finished and s.n_steps
        return (s.n_cached, min(s.n_valid, s.request.n_prompt)) if s and is_begun else None

    def _stream(self, s: Sequence) -> Stream[Any, Any]:
        self._sequences[s.id] = s
        return Stream(self, s.id, s.outbox)

    def cancel(self, id: int) -> None:
        """Ends a request: no further row of it is submitted. Unknown and finished ids are ignored."""
        if id in self._sequences:
            self._end(self._sequences[id], "cancelled")

    def cancel_all(self) -> None:
        """Ends every request."""
        for id in list(self._sequences):
            self.cancel(id)

    def hold(self, id: int, *, held: bool = True) -> None:
        """Excludes a request from further steps while `held`; its units stay. Unknown ids are ignored."""
        if id in self._sequences:
            self._sequences[id].is_held = held

    async def fork(self, id: int, *, choice: int, whole: bool = True) -> Stream[Any, Any]:
        """Starts a second stream from a running request's tokens, with its own draws.

        The streams share pages until one writes to them. Without `whole` the second stream starts from the
        prompt alone and repeats its last row. Without a free allocation the fork waits like any request.
        Raises RequestError for a request that has ended or that computes logits.
        """
        check_choice(choice)
        async with self._turn:
            parent = self._sequences.get(id)
            while parent and parent.n_in_flight and not parent.is_finished:
                await self.recovery.settle(self._retire)
            if parent is None or parent.is_finished or not parent.request.generates:
                raise RequestError(f"request {id} does not run, so it cannot be forked", field="id")
            if whole:
                return self._fork(parent, parent.fork(next(self._ids), choice), parent.n_rows)
            child = parent.fork_prompt(next(self._ids), choice)
            return self._fork(parent, child, min(parent.n_rows, child.n_prompt - 1))

    def _fork(self, parent: Sequence, child: Sequence, n_rows: int) -> Stream[Any, Any]:
        """Starts a copy of a sequence without rows in flight; it shares pages if a table row is free."""
        units = parent.allocation
        fits = units and (n_rows == parent.n_rows or self.state.can_fork_at(units, n_rows))
        has_slot = fits and self._scheduler.takes_slot(child)
        allocation = self.state.fork(units, n_rows) if units and has_slot else None
        if allocation:
            child.attach(allocation)
            child.n_hit_rows = 0  # the rows come from the parent, not from the prefix cache
            self._scheduler.add_running(child)
        else:
            self._scheduler.drop_slot(child)
            child.late = None  # its row is computed again
            self._scheduler.add(child)
        self._timeouts.add(child)
        self.counters.forks += 1
        return self._stream(child)

    async def step(self) -> bool:
        """Submits the steps that can be submitted, then retires the older half.

        Returns False if there was nothing to do.
        """
        async with self._turn:
            return await self._step()

    @property
    def waits_for_mask(self) -> bool:
        """True if a running sequence waits for its mask, which another process may have ready soon."""
        return self._scheduler.has_late

    async def serve(self, outbox: Outbox) -> None:
        """Steps until the outbox has an event or is closed."""
        while not outbox.events and outbox.is_open:
            async with self._turn:  # another task's step may have filled the outbox meanwhile
                if outbox.events or not outbox.is_open or await self._step():
                    continue
                # a step that cannot be submitted closes the outbox with its error
                if outbox.is_open and not self.waits_for_mask:
                    raise PlanError("the engine is idle, but a request waits: its units leaked", op="step")
            await asyncio.sleep(LATE_S)  # every running sequence waits for a mask

    async def drain(self, id: int) -> None:
        """Retires steps until no step in flight has rows of a finished request."""
        async with self._turn:
            while id in self._sequences and self._sequences[id].is_finished:
                await self.recovery.settle(self._retire)

    async def _step(self) -> bool:
        try:
            if not self.recovery.lost:
                return await self._advance()
        except DeviceLostError as error:
            self.recovery.lose(error)
        await self.recovery.reopen()
        return True

    async def _advance(self) -> bool:
        for sequence in self._timeouts.due(self._sequences):
            self.counters.timeouts += 1
            self._end(sequence, "timeout")
        for item, rows in self._scheduler.late_rows():
            self._delivery.process(item, rows)
        n_failed = self.counters.failed_steps
        for _ in range(2):  # twice: a preempted or failed sequence frees units for a waiting one
            await self._prepare()
            self._fill()
            if self._pending:
                await self._retire()
                return True
        return self.counters.failed_steps > n_failed

    async def _prepare(self) -> None:
        """Admits waiting sequences, writes the token history of prefix hits, and asks for drafts."""
        scheduler = self._scheduler
        scheduler.admit()
        # a sequence whose history cannot be written ends, and leaves the queue on the second pass
        while scheduler.newly_running:
            await self._isolated(scheduler.newly_running[0], self._start)
        for s in scheduler.speculating():
            await self._isolated(s, self._propose)

    async def _isolated(self, s: Sequence, work: Callable[[Sequence], Awaitable[None]]) -> None:
        """Runs `work` for one sequence; an exception ends only this sequence, unless the device is lost."""
        try:
            await work(s)
        except DeviceLostError:
            raise
        except Exception as error:
            self._end(s, "error", error)

    async def _start(self, s: Sequence) -> None:
        """Writes a new sequence's adapter and token history, and counts its prefix hit.

        The sequence leaves `newly_running` after the write, so that a cancelled task repeats the write.
        """
        if s.adapter_slot:
            await self.adapters.write(s.adapter_slot, self.backend.write_state)
        if s.allocation and s.n_rows and s.step_sampling.penalty_last_n:
            await write_history(self.backend, self.state, s.allocation, s.token_ids[: s.n_rows])
        self._scheduler.newly_running.popleft()
        self.counters.cached_rows += s.n_hit_rows
        self.counters.prefix_hits += s.n_hit_rows > 0

    async def _propose(self, s: Sequence) -> None:
        """Sets the sequence's drafts, at most as many as its context can hold."""
        assert s.proposer is not None, "the sequence has a proposer"
        most = min(self.limits.drafts, s.limit - len(s.token_ids) - 1)
        if most > 0:
            s.drafts = await propose_drafts(
                s.proposer, s.token_ids, most, s.request.sampling, self.vocab_size
            )

    def _fill(self) -> None:
        while self._ahead.has_room([pending.batch.program for pending in self._pending], self._scheduler):
            batch = self._scheduler.next_batch()
            if batch is None:
                return
            self._submit(batch)

    def _submit(self, batch: Batch) -> None:
        now = self._clock()
        for item in batch.scheduled:
            item.sequence.clock.start()
        try:
            step = build_step(batch, self.state, self.counters.steps_submitted)
            program = self.programs.smallest(program_of(batch, step), step)
            ticket = submit_batch(self.backend, program, batch, encode_step(step, program.plan.layout))
        except DeviceLostError:
            raise
        except Exception as error:
            self._fail(batch, error)
            return
        for item in batch.scheduled:
            item.sequence.submitted(item.n_rows, item.n_outputs)
        decode = sum(item.n_rows for item in batch.scheduled if item.sequence.n_rows > item.sequence.n_prompt)
        self._pending.append(PendingStep(batch, ticket, now, decode))
        n_drafts = len(step.rows) - len(batch.scheduled) if batch.program == VERIFY else 0
        self.counters.count_step(step, program.key.capacity, n_decode=decode, n_drafts=n_drafts)
        self.counters.max_in_flight = max(self.counters.max_in_flight, len(self._pending))
        self.counters.preemptions = self._scheduler.n_preempted
        self.counters.evicted_units = self.state.n_evicted

    async def _retire(self) -> None:
        """Reads the older half of the steps in flight while the others run; over several stages the oldest
        alone, whose sequences the first stage waits for.

        All steps stay in flight if this task is cancelled during the read.
        """
        n_due = 1 if self._n_stages > 1 else (len(self._pending) + 1) // 2
        due = list(islice(self._pending, n_due))
        for pending in reversed(due):  # last step first: one wait covers all of them
            await pending.read(self.backend)
        now = self._clock()
        seconds, self._retired = (now - max(due[0].submitted, self._retired)) / len(due), now
        for pending in due:
            if isinstance(pending.error, DeviceLostError):
                raise pending.error
            self._pending.popleft()
            self.recovery.n_losses = 0
            self._note_time(pending, seconds)
            for item in pending.batch.scheduled:
                item.sequence.retired(item.n_rows, item.n_outputs)
            if pending.error:
                self._fail(pending.batch, pending.error)
            else:
                self._delivery.deliver(pending.batch, pending.result or ())

    def _note_time(self, pending: PendingStep, seconds: float) -> None:
        """Counts a retired step, timed from its submission or from the previous retirement, the later one."""
        self.counters.steps_retired += 1
        self.counters.retired_decode_rows += pending.n_decode
        n_rows, program = sum(item.n_rows for item in pending.batch.scheduled), pending.batch.program
        budgets = self._scheduler.prefill_budgets
        if program in budgets:
            depth, n_prefill = pending.batch.prefill_depth, n_rows - pending.n_decode
            budgets[program].observe(depth, n_prefill, seconds, generates=bool(pending.n_decode))
        elif program != ENCODE:
            for budget in budgets.values():
                budget.observe_generation(seconds)
        if program == DECODE:
            self._ahead.observe(seconds)
        if self.hooks:
            notify(self.hooks, StepStats(program, len(pending.batch.scheduled), n_rows, seconds))

    def _fail(self, batch: Batch, error: Exception) -> None:
        """Ends the sequences of a failed step, and no others."""
        self.counters.failed_steps += 1
        for item in batch.scheduled:
            item.sequence.is_failed = True
            self._end(item.sequence, "error", error)

    def _end(self, s: Sequence, reason: FinishReason, error: Exception | None = None) -> None:
        """Closes a sequence's outbox and frees its units."""
        s.finish(reason, error)
        self._release(s)

    def _release(self, s: Sequence) -> None:
        """Removes a finished sequence once none of its rows is in flight."""
        self._scheduler.remove(s)
        if not s.n_in_flight:
            self._sequences.pop(s.id, None)
