"""Waist 1: `submit`, `step`, `cancel`. A step is submitted, then retired; only retired ids are streamed.

While the device works on a step, the next ones are already submitted (up to the backend's
`max_in_flight`): a row whose id the host has not read yet takes it from the device's ring. What a step
computed for a sequence that has meanwhile ended is discarded when it retires.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from dataclasses import dataclass
from itertools import count

from camelid.backends.base import Backend, Capabilities, OutputRow, Program, Result, Ticket
from camelid.drawing import choose
from camelid.errors import BackendError, ContextOverflowError, PlanError, RequestError
from camelid.messages import shown
from camelid.metrics import Counters
from camelid.plan.step import FROM_RING, Step, encode_step
from camelid.scheduler import ALL_LOGITS, GUIDED, Batch, Limits, Scheduler, build_step
from camelid.sequence import Completion, Event, FinishReason, Outbox, Request, Sequence
from camelid.state import StateManager

STATUS_HINT = "the weights or a kernel are broken: compare with backend 'reference'"


class Stream(AsyncIterator[Event]):
    """A request's events as they come. Dropping or closing it cancels the request."""

    def __init__(self, engine: StepEngine, id: int, outbox: Outbox) -> None:  # noqa: A002
        self.id = id
        self._engine = engine
        self._outbox = outbox

    @property
    def completion(self) -> Completion:
        """The whole answer, once the stream has ended; RequestError before."""
        if self._outbox.completion is None:
            raise RequestError(f"request {self.id} has not finished; read its stream to the end", field="id")
        return self._outbox.completion

    @property
    def logits(self) -> list[memoryview[float]]:
        """A request's logits, [V] float32 a prompt row, if it asked for them."""
        return self._outbox.logits

    def __aiter__(self) -> Stream:
        return self

    async def __anext__(self) -> Event:
        """The next event. Raises what made the request fail, after the events that came before it."""
        await self._engine.serve(self._outbox)
        if self._outbox.events:
            return self._outbox.events.popleft()
        if self._outbox.error:
            raise self._outbox.error
        raise StopAsyncIteration

    def close(self) -> None:
        """Cancels the request if it still runs; its units are free once its last step has retired."""
        self._engine.cancel(self.id)

    async def aclose(self) -> None:
        """Cancels the request, and waits until its units are free."""
        self.close()
        await self._engine.settle(self.id)

    def __del__(self) -> None:
        self.close()


@dataclass(frozen=True, slots=True)
class Flight:
    """A step that was submitted and not yet retired."""

    batch: Batch
    ticket: Ticket


class StepEngine:
    """Runs requests on an opened backend. Not for several threads; any number of tasks may consume."""

    def __init__(
        self,
        backend: Backend,
        programs: dict[str, Program],
        state: StateManager,
        *,
        limits: Limits,
        vocab_size: int,
        max_in_flight: int | None = None,
    ) -> None:
        self.backend = backend
        self.programs = programs
        self.vocab_size = vocab_size
        capabilities = backend.capabilities()
        self._name = capabilities.name
        self.max_in_flight = _check_depth(max_in_flight, capabilities)
        self.counters = Counters()
        self._state = state
        self._scheduler = Scheduler(state, limits)
        self._flights: deque[Flight] = deque()
        self._sequences: dict[int, Sequence] = {}
        self._ids = count(1)
        self._turn = asyncio.Lock()  # one task steps at a time; uncontended it never touches a loop

    @property
    def context(self) -> int:
        """The most tokens that prompt and answer of one request may have together."""
        return self._state.max_rows

    @property
    def is_idle(self) -> bool:
        """No request, no step in flight, every unit free."""
        return not self._sequences and not self._flights and self._state.is_idle

    def submit(self, request: Request) -> Stream:
        """Queues a request. Raises RequestError or ContextOverflowError if it can never be served."""
        max_tokens = self._check(request)
        sequence = Sequence(id=next(self._ids), request=request, max_tokens=max_tokens)
        self._sequences[sequence.id] = sequence
        self._scheduler.add(sequence)
        self.counters.requests += 1
        return Stream(self, sequence.id, sequence.outbox)

    def cancel(self, id: int) -> None:  # noqa: A002
        """Ends a request: no further row of it is submitted. Unknown and finished ids are ignored."""
        if id in self._sequences:
            self._end(self._sequences[id], "cancelled")

    def cancel_all(self) -> None:
        """Ends every request."""
        for id in list(self._sequences):  # noqa: A001
            self.cancel(id)

    async def step(self) -> bool:
        """Submits what can be submitted, then retires the oldest step. False if there was nothing to do."""
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
        self._fill()
        if not self._flights:
            return False
        await self._retire()
        return True

    def _fill(self) -> None:
        while len(self._flights) < self.max_in_flight:
            batch = self._scheduler.next_batch()
            if batch is None:
                return
            self._submit(batch)

    def _submit(self, batch: Batch) -> None:
        program = self.programs[batch.program]
        for work in batch.work:
            work.sequence.clock.start()
        try:
            step = build_step(batch, self._state, self.counters.steps_submitted)
            ticket = self.backend.run(program, encode_step(step, program.plan.layout))
        except Exception as error:
            self._fail(batch, error)
            return
        self._flights.append(Flight(batch, ticket))
        for work in batch.work:
            work.sequence.submitted(work.n_rows, work.n_outputs)
        self._count(batch, step)

    def _count(self, batch: Batch, step: Step) -> None:
        counters = self.counters
        counters.steps_submitted += 1
        counters.max_in_flight = max(counters.max_in_flight, len(self._flights))
        decode = sum(1 for work in batch.work if work.sequence.n_rows > work.sequence.n_prompt)
        counters.decode_rows += decode
        counters.prefill_rows += len(step.rows) - decode
        counters.ring_rows += sum(row.source == FROM_RING for row in step.rows)

    async def _retire(self) -> None:
        """Reads the oldest step. It stays in flight if this task is cancelled while it waits."""
        flight = self._flights[0]
        result: Result = ()
        error: Exception | None = None
        try:
            result = await self.backend.read(flight.ticket)
        except Exception as failure:
            error = failure
        self._flights.popleft()
        self.counters.steps_retired += 1
        for work in flight.batch.work:
            work.sequence.n_in_flight -= 1
        if error:
            self._fail(flight.batch, error)
        else:
            self._deliver(flight.batch, result)

    def _fail(self, batch: Batch, error: Exception) -> None:
        """Ends the sequences of a step that failed, and no others."""
        self.counters.failed_steps += 1
        for work in batch.work:
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
                self._take(work.sequence, rows)

    def _take(self, s: Sequence, rows: Result) -> None:
        """Results of one sequence; whatever goes wrong with them ends this sequence only."""
        accept = self._accept_logits if s.request.all_logits else self._accept
        try:
            for row in rows:
                self._check_row(row, s)
                accept(s, row)
        except Exception as error:
            self._end(s, "error", error)

    def _check_row(self, row: OutputRow, s: Sequence) -> None:
        name = self._name
        if row.status != "ok":
            found = {"nan": "not a number", "zero": "all zero"}[row.status]
            raise BackendError(
                f"backend {name!r}: the logits after {len(s.token_ids)} tokens are {found}; {STATUS_HINT}",
                backend=name, status=row.status,
            )  # fmt: skip
        if not 0 <= row.token_id < self.vocab_size:
            raise BackendError(
                f"backend {name!r} sampled token {row.token_id} of {self.vocab_size}; {STATUS_HINT}",
                backend=name, token_id=row.token_id,
            )  # fmt: skip

    def _accept(self, s: Sequence, row: OutputRow) -> None:
        s.clock.token()
        token_id, logprob = self._guide(s, row) if s.constraint else (row.token_id, row.logprob)
        if token_id in s.request.eos_ids:
            s.emit(s.sink.flush(), None, 0.0)
            self._end(s, "stop")
            return
        s.token_ids.append(token_id)
        text = s.sink.push(token_id)
        is_stop = s.sink.stopped or (s.constraint is not None and s.constraint.is_finished)
        is_last = is_stop or len(s.token_ids) == s.max_rows
        if is_last:
            text += s.sink.flush()
        s.emit(text, token_id, logprob)
        if is_last:
            self._end(s, "stop" if is_stop else "length")

    def _guide(self, s: Sequence, row: OutputRow) -> tuple[int, float]:
        """The token that the constraint lets through, and its log-probability before the mask."""
        logits = self._logits(row)
        assert s.constraint is not None, "only guided sequences come here"
        how = s.request.sampling.words()
        token_id = choose(row.token_id, logits, s.constraint, how, len(s.token_ids))
        self.counters.guided_rows += 1
        self.counters.redrawn_rows += token_id != row.token_id
        return token_id, logits[token_id] - row.log_sum_exp

    def _logits(self, row: OutputRow) -> memoryview[float]:
        if row.logits is None:
            raise BackendError(
                f"backend {self._name!r} computes no logits; use reference or webgpu", backend=self._name
            )
        return row.logits

    def _accept_logits(self, s: Sequence, row: OutputRow) -> None:
        s.outbox.logits.append(self._logits(row))
        if len(s.outbox.logits) == s.n_prompt:
            self._end(s, "stop")

    def _end(self, s: Sequence, reason: FinishReason, error: Exception | None = None) -> None:
        s.finish(reason, error)
        self._release(s)

    def _release(self, s: Sequence) -> None:
        """Forgets an ended sequence, once none of its rows is in flight."""
        self._scheduler.remove(s)
        if not s.n_in_flight:
            self._sequences.pop(s.id, None)

    def _check(self, request: Request) -> int:
        """The most tokens that the answer may have."""
        self._check_prompt(request)
        n_prompt, context = len(request.prompt_ids), self.context
        if request.all_logits:
            n_tokens = 0
        elif request.max_tokens is None:
            n_tokens = max(context - n_prompt, 1)
        else:
            n_tokens = request.max_tokens
        if n_prompt + n_tokens > context:
            raise ContextOverflowError(
                f"{n_prompt} prompt tokens and {n_tokens} to answer exceed the context of {context}; shorten "
                "the prompt, ask for fewer tokens, or load with a larger context",
                field="prompt", n_tokens=n_prompt + n_tokens, context_length=context,
            )  # fmt: skip
        return n_tokens

    def _check_prompt(self, request: Request) -> None:
        if not request.prompt_ids:
            raise RequestError("the prompt is empty; give at least one token", field="prompt")
        bad = next((i for i in request.prompt_ids if not 0 <= i < self.vocab_size), None)
        if bad is not None:
            raise RequestError(
                f"prompt token {bad} is outside the vocabulary of {self.vocab_size}", field="prompt"
            )
        n = request.max_tokens
        if n is not None and (type(n) is not int or n < 1):
            raise RequestError(f"max_tokens is {shown(n)}, expected an integer from 1 on", field="max_tokens")
        for asked, entry in ((request.all_logits, ALL_LOGITS), (request.constraint, GUIDED)):
            if asked and entry not in self.programs:
                raise PlanError(f"{entry} was asked for before its program was compiled", op="sample")


def _check_depth(asked: int | None, capabilities: Capabilities) -> int:
    """Steps that may be in flight: as asked, else as many as the backend allows."""
    most = capabilities.max_in_flight
    if asked is None:
        return most
    if type(asked) is not int or not 1 <= asked <= most:
        raise RequestError(
            f"max_in_flight is {asked!r}, expected an integer from 1 to {most}, the most that backend "
            f"{capabilities.name!r} allows",
            field="max_in_flight",
        )
    return asked
