"""Engines over `HashBackend`, whose "model" hashes the tokens that its memory holds."""

from __future__ import annotations

import asyncio
from array import array
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import count
from random import Random
from statistics import mean, pvariance
from time import perf_counter
from typing import Any

from tests.support import shadow
from tests.support.shadow import TABLES, VOCAB, Shadow, View, chain_key, drawn

from camelid.backends.base import Candidates, Capabilities, OutputRow, PoolSize, Program, Result, Ticket
from camelid.backends.null.backend import NullBackend, QueuedStep
from camelid.engine.adapters import RequestAdapter, with_adapters
from camelid.engine.engine import StepEngine
from camelid.engine.kv_cache import KVCacheManager
from camelid.engine.pace import rows_ahead
from camelid.engine.programs import (
    ALL_LOGITS,
    DECODE,
    ENTRIES,
    MIXED,
    Limits,
    ProgramTable,
    program_key,
    program_keys,
)
from camelid.engine.request import Request
from camelid.engine.scheduler import check_depth
from camelid.engine.stream import Stream
from camelid.errors import BackendError, DeviceLostError
from camelid.plan.plan import Plan, StateSpec
from camelid.plan.step import CANDIDATES, FROM_RING, Step, decode_step
from camelid.sampling.params import SamplingParams

PAGE_ROWS, RING_ROWS = 4, 16
EOS = 0  # no hash is 0
STATES = (
    StateSpec("kv", "paged", (0,), (("k", 1), ("v", 1)), PAGE_ROWS),
    StateSpec("tokens", "ring", (), (("id", 1),), RING_ROWS),
)
GREEDY = SamplingParams(temperature=0.0, seed=0)
# A row's logits: 0 for its likeliest token, then FALL less for each following id, wrapping at VOCAB.
FALL = 0.25
FALLING: memoryview[Any] = memoryview(array("f", [-FALL * (i % VOCAB) for i in range(2 * VOCAB)]))


def logits_of(token_id: int) -> memoryview[float]:
    """[V] float32, largest at `token_id`."""
    return FALLING[VOCAB - token_id : 2 * VOCAB - token_id]


@cache
def spread() -> tuple[float, float]:
    """Mean and variance of any row's logits."""
    return mean(FALLING[:VOCAB]), pvariance(FALLING[:VOCAB])


def candidates_of(token_id: int) -> Candidates:
    n = min(CANDIDATES, VOCAB)
    ids = array("I", [(token_id + i) % VOCAB for i in range(n)])
    average, variance = spread()
    return Candidates(ids=memoryview(ids), logits=FALLING[:n], mean=average, variance=variance)


def expected_ids(prompt: Sequence[int], n: int) -> list[int]:
    return shadow.expected_ids(STATES, prompt, n)


@dataclass
class HashBackend(NullBackend):
    """A shadow device as a backend that records every step. The `faults` fields map a step to its exception.

    With `late`, steps take effect late. A step whose read fails leaves poison in the units it wrote.
    """

    depth: int = 2
    late: Random | None = None
    eos_after: dict[int, int] = field(default_factory=dict)  # first token -> position of an EOS
    run_faults: dict[int, Exception] = field(default_factory=dict)
    read_faults: dict[int, Exception] = field(default_factory=dict)
    statuses: dict[int, str] = field(default_factory=dict)  # position -> status, if a prompt begins with 7
    steps: list[Step] = field(default_factory=list)
    entries: list[str] = field(default_factory=list)
    reads: list[int] = field(default_factory=list)
    denies_write: bool = False  # the next write to the state fails
    is_lost: bool = False  # the device: every call fails until `recover`
    row_buckets: tuple[int, ...] = ()
    rows: list[tuple[int, int]] = field(default_factory=list)  # of each step, and of its program
    n_stages: int = 1

    def __post_init__(self) -> None:
        super().__init__(late=self.late, counts=False)
        self._added: tuple[Sequence[StateSpec], Mapping[str, PoolSize]] | None = None

    def capabilities(self) -> Capabilities:
        return Capabilities(
            name="hash", device="test", ops=frozenset(), weight_types=frozenset(), promise="A+B",
            max_in_flight=self.depth, row_buckets=self.row_buckets,
            n_stages=self.n_stages,
        )  # fmt: skip

    async def allocate(self, states: Sequence[StateSpec], units: Mapping[str, PoolSize]) -> None:
        if states and states[0].kind == "adapter":
            self.shadow.add(states, units)
            self._added = states, units
            return
        self.shadow = Shadow(states, units)
        self._allocated = states, units

    async def recover(self) -> bool:
        self._queue.clear()
        await self.allocate(*self._allocated)
        if self._added:
            await self.allocate(*self._added)
        await asyncio.sleep(0)
        self.is_lost = False
        return True

    def _check(self) -> None:
        if self.is_lost:
            raise DeviceLostError("the device is lost", backend="hash", reason="test")

    def run(self, program: Program, step: bytes, inputs: Mapping[str, bytes] | None = None) -> Ticket:
        self._check()
        number = len(self.steps)
        self.steps.append(decode_step(step, program.plan.layout))
        fed = [row for row in self.steps[-1].rows if row.source == FROM_RING]
        assert self.n_stages == 1 or not fed, "the first stage has no drawn ids"
        self.entries.append(program.key.entry)
        self.rows.append((len(self.steps[-1].rows), program.key.capacity.rows))
        if number in self.run_faults:
            self.counters["runs"] += 1
            raise self.run_faults[number]
        return super().run(program, step, inputs)

    async def read(self, ticket: Ticket) -> Result:
        self._check()
        rows, number = await super().read(ticket), ticket.handle.number
        self.reads.append(number)
        if number in self.read_faults:
            raise self.read_faults[number]
        return rows

    def effect(self, work: QueuedStep) -> Result:
        step = self.steps[work.number]
        views = self.shadow.run(step, is_failed=work.number in self.read_faults)
        features = work.program.key.features
        rows = [self.output(step, o, v, features) for o, v in zip(step.outputs, views, strict=True)]
        self.shadow.keep(step, [row.token_id for row in rows])
        return rows

    def output(
        self, step: Step, output: tuple[int, int, int], views: Sequence[View], features: Collection[str]
    ) -> OutputRow:
        row, sequence, position = output
        assert step.rows[row].state_row == position - 1, "an output's position is that of the next row"
        first = views[0][0]
        token = drawn(views, how=() if features else self._key(step, sequence, position))
        token = EOS if self.eos_after.get(first) == position else token
        return OutputRow(
            token_id=token,
            status=self.statuses.get(position, "ok") if first == 7 else "ok",
            logit=1.0,
            log_sum_exp=1.5,
            logits=logits_of(token) if ALL_LOGITS in features else None,
            candidates=candidates_of(token) if "candidates" in features else None,
        )

    def _key(self, step: Step, sequence: int, position: int) -> tuple[object, ...]:
        how = step.sampling[step.sequences[sequence].sampling]
        return chain_key(how, position, self.shadow.recent(step, sequence, position))

    async def read_state(self, group: str, unit: int) -> bytes:
        self._check()
        self.finish()
        data = self.shadow.read(group, unit)
        await asyncio.sleep(0)
        return data

    async def write_state(self, group: str, unit: int, data: bytes) -> None:
        self._check()
        self.finish()
        if self.denies_write:
            self.denies_write = False
            raise BackendError("the device hiccupped", backend="hash")
        self.shadow.write(group, unit, data)
        await asyncio.sleep(0)


def make_plan(entry: str, limits: Limits, states: Sequence[StateSpec] = STATES) -> Plan:
    n_paged = sum(state.kind in TABLES for state in states)
    return Plan(
        key=program_key(entry, limits, PAGE_ROWS, n_paged=max(n_paged, 1)), stages=(), states=tuple(states)
    )


def make_plans(entry: str, limits: Limits, states: Sequence[StateSpec], buckets: Sequence[int]) -> list[Plan]:
    n_paged = max(sum(state.kind in TABLES for state in states), 1)
    keys = program_keys(entry, limits, PAGE_ROWS, n_paged=n_paged, row_buckets=buckets)
    return [Plan(key=key, stages=(), states=tuple(states)) for key in keys]


class ShortSteps:
    """A clock that makes steps look short, so that the engine runs many ahead."""

    def __init__(self) -> None:
        self._looks = count()

    def __call__(self) -> float:
        return 1e-6 * next(self._looks)


async def make_engine(
    backend: HashBackend,
    *,
    context: int = 64,
    parallel: int = 3,
    chunk: int = 8,
    n_pages: int | None = None,
    max_in_flight: int | None = None,
    clock: Callable[[], float] = perf_counter,
) -> StepEngine:
    """An engine over one paged group and the ring, with the programs of plain requests."""
    limits = Limits(chunk, parallel, context, step_s=1e9)  # chunks by rows, however slow the machine is
    return await open_engine(
        backend,
        STATES,
        limits,
        n_pages=n_pages,
        max_in_flight=max_in_flight,
        entries=(DECODE, MIXED),
        clock=clock,
    )


async def open_engine(
    backend: HashBackend,
    states: Sequence[StateSpec],
    limits: Limits,
    *,
    n_pages: int | None,
    max_in_flight: int | None = None,
    entries: Collection[str] = tuple(ENTRIES),
    clock: Callable[[], float] = perf_counter,
    first_checkpoint: int = 0,
) -> StepEngine:
    """An engine over any state groups."""
    depth = check_depth(max_in_flight, backend.capabilities())
    state = KVCacheManager(
        states, context=limits.context, n_sequences=limits.parallel, n_pages=n_pages,
        chunk=rows_ahead(limits.chunk, depth, backend.n_stages), first_checkpoint=first_checkpoint,
    )  # fmt: skip
    await backend.allocate(states, state.sizes())
    programs = ProgramTable()
    for entry in entries:
        plans = make_plans(entry, limits, states, backend.row_buckets)
        programs.add(entry, [await backend.compile(plan) for plan in plans])
    return StepEngine(
        backend,
        programs,
        state,
        limits=limits,
        vocab_size=VOCAB,
        max_in_flight=max_in_flight,
        clock=clock,
    )


ADAPTERS = StateSpec("adapters.0", "adapter", (0,), (("0", 1),), 1)


async def open_slots(engine: StepEngine, n: int) -> None:
    """Gives an engine adapter slots and the variants of its programs."""
    await engine.backend.allocate([ADAPTERS], {ADAPTERS.name: PoolSize(1 + n)})
    engine.adapters.n_slots = n
    for entry in ENTRIES:
        plan = make_plan(entry, engine.limits, engine.state.states)
        plan = replace(plan, states=(*plan.states, ADAPTERS))
        engine.programs.add(with_adapters(entry), [await engine.backend.compile(plan)])


def adapter_of(value: int, invocation: tuple[int, ...] = ()) -> RequestAdapter:
    """An adapter whose slot has one word."""
    data = value.to_bytes(4, "little")
    return RequestAdapter(f"adapter {value}", data, lambda: {ADAPTERS.name: data}, invocation)


def request(prompt: Sequence[int], max_tokens: int | None = 8, **more: Any) -> Request:
    return Request(
        prompt_ids=tuple(prompt), sampling=GREEDY, max_tokens=max_tokens, eos_ids=frozenset({EOS}), **more
    )


async def collect(stream: Stream) -> list[int]:
    return [event.token_id async for event in stream if event.token_id is not None]
