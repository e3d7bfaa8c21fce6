"""Situations of a request that must not change one bit of its answer.

Each function opens an engine, runs the request in one situation, and returns its events. Counters that must
have moved prove that the situation occurred.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

from camelid.backends.base import Backend, Capabilities, OpenSpec
from camelid.backends.reference.backend import ReferenceBackend
from camelid.backends.registry import open_backend
from camelid.backends.staged.backend import StagedBackend
from camelid.engine.engine import StepEngine
from camelid.engine.programs import VERIFY, Limits
from camelid.engine.request import Overflow, Request
from camelid.engine.stream import Stream
from camelid.loading.deployment import Deployment
from camelid.loading.options import LoadOptions
from camelid.loading.start import compile_plans, start_engine
from camelid.model.arch import Model
from camelid.requests.output_text import Event
from camelid.sampling.params import SamplingParams

Bits = list[tuple[int, float]]  # token id and log-probability of each event
FIRST = 7  # answer tokens before the situation begins; no page ends there


class AheadReference(ReferenceBackend):
    """The reference, computing in `run`, so that a step may be submitted before an earlier one is read."""

    def capabilities(self) -> Capabilities:
        return replace(super().capabilities(), max_in_flight=2)


BACKENDS: Mapping[str, Callable[[], Backend]] = {
    "reference": AheadReference,
    "webgpu": lambda: open_backend("webgpu"),
    "cpu": lambda: open_backend("cpu"),
}


@dataclass(frozen=True, kw_only=True)
class Case:
    """One request to one model: prompt length, answer length, and sampling.

    For a model cut into stages, `backend` joins the stages' backends by +; the last stage has the adapter.
    """

    model: Model
    sources: Mapping[str, Any] = field(default_factory=dict[str, Any])
    backend: str = "reference"
    adapter: str = ""
    cuts: tuple[int, ...] = ()
    kv_type: str = "f32"
    context: int = 128
    n_prompt: int = 60
    n_tokens: int = 20
    sampling: Mapping[str, Any] = field(default_factory=dict[str, Any])
    overflow: Overflow = "error"
    answer: tuple[int, ...] = ()  # of the request run alone

    def prompt(self, salt: int = 0) -> tuple[int, ...]:
        vocab = self.model.spec.vocab_size
        return tuple((37 * i * i + 11 * i + 101 * salt) % vocab for i in range(self.n_prompt))

    def request(self, **more: Any) -> Request:
        sampling = SamplingParams(seed=7, **self.sampling)
        given: dict[str, Any] = {
            "prompt_ids": self.prompt(),
            "max_tokens": self.n_tokens,
            "overflow": self.overflow,
            "sampling": sampling,
        }
        return Request(**(given | more))

    def others(self, n: int) -> list[Request]:
        """Long-running requests of other lengths with other sampling."""
        ways = [SamplingParams(seed=i, **how) for i, how in enumerate((self.sampling, {"temperature": 0.0}))]
        prompts = [self.prompt(i + 1)[: 5 + 7 * i] for i in range(n)]
        return [
            self.request(prompt_ids=p, sampling=ways[i % 2], max_tokens=min(60, self.context - len(p)))
            for i, p in enumerate(prompts)
        ]


async def open_one(case: Case) -> Backend:
    """Opens the backend, or the backends of all stages."""
    parts = [BACKENDS[name]() for name in case.backend.split("+")]
    for part in parts:
        await part.open(OpenSpec(adapter=case.adapter if part is parts[-1] else ""))
    return StagedBackend(parts, case.cuts, len(case.model.spec.layers)) if case.cuts else parts[0]


@asynccontextmanager
async def opened(
    case: Case,
    *,
    parallel: int = 1,
    chunk: int = 64,
    kv_rows: int | None = None,
    programs: Sequence[str] = (),
    depth: int | None = None,
) -> AsyncIterator[StepEngine]:
    """Opens an engine as `load` does."""
    backend = await open_one(case)
    limits = Limits(chunk, parallel, case.context, step_s=1e9)
    depth = depth and min(depth, backend.capabilities().max_in_flight)
    options = LoadOptions(kv_type=case.kv_type, kv_rows=kv_rows, max_in_flight=depth)
    file: Any = SimpleNamespace(model=case.model, sources=case.sources)
    can = backend.capabilities()
    deployment = Deployment(case.model, limits, can, case.kv_type, kv_rows, depth or can.max_in_flight)
    engine = await start_engine(file, backend, deployment, options, lambda *_: None)
    for name in {*programs, *case.request().programs}:
        await compile_plans(engine.programs, name, backend, deployment.plans(name))
    try:
        yield engine
        while await engine.step():
            pass
        assert engine.is_idle, "units were not freed"
    finally:
        await backend.close()


async def read(stream: Stream, n: int | None = None) -> Bits:
    """Reads the next `n` events, or all."""
    events: list[Event] = []
    while n is None or len(events) < n:
        try:
            events.append(await anext(stream))
        except StopAsyncIteration:
            break
    return [(event.token_id, event.logprob) for event in events if event.token_id is not None]


def must_move(engine: StepEngine, *names: str) -> None:
    still = [name for name in names if not getattr(engine.counters, name)]
    assert not still, f"{still} did not move: {engine.counters}"


async def alone(case: Case) -> Bits:
    async with opened(case) as engine:
        return await read(engine.submit(case.request()))


async def among_others(case: Case) -> Bits:
    async with opened(case, parallel=9, chunk=16) as engine:
        sizes: list[int] = []
        engine.hooks.append(lambda facts: sizes.append(facts.n_sequences))
        others = [engine.submit(r) for r in case.others(4)]
        mine = engine.submit(case.request())
        others += [engine.submit(r) for r in case.others(4)]
        bits, *_ = await asyncio.gather(read(mine), *(read(other) for other in others))
        most = 5 if engine.backend.capabilities().n_stages == 1 else 2  # stages share out the requests
        assert max(sizes) >= most, "no step was shared"
        return bits


async def run_ahead(case: Case) -> Bits:
    async with opened(case) as engine:
        bits = await read(engine.submit(case.request()))
        must_move(engine, "ring_rows")
        return bits


async def found(case: Case) -> Bits:
    """The start of the prompt is in the prefix cache; the request continues from it."""
    async with opened(case) as engine:
        first = await read(engine.submit(case.request(max_tokens=FIRST)))
        n = 46 if case.context > 100 else 10  # leaves the prompt's pages cached
        await read(
            engine.submit(case.request(prompt_ids=case.prompt(1)[:n], max_tokens=2))
        )  # in its allocation
        begun = (*case.prompt(), *(token_id for token_id, _ in first))
        rest = case.request(prompt_ids=begun, max_tokens=case.n_tokens - FIRST)
        bits = first + await read(engine.submit(rest))
        must_move(engine, "prefix_hits", "cached_rows")
        return bits


async def begun_alike(case: Case) -> Bits:
    """Another prompt with the same beginning ran; the request continues from pages or a checkpoint within."""
    async with opened(case) as engine:
        n = case.n_prompt * 3 // 4
        other = (*case.prompt()[:n], *case.prompt(3)[n:])
        await read(engine.submit(case.request(prompt_ids=other, max_tokens=4)))
        bits = await read(engine.submit(case.request()))
        must_move(engine, "prefix_hits", "cached_rows")
        assert engine.counters.cached_rows <= n, "rows of the other prompt were found"
        return bits


def chunked(chunk: int) -> Callable[[Case], Coroutine[Any, Any, Bits]]:
    async def run(case: Case) -> Bits:
        async with opened(case, chunk=chunk) as engine:
            bits = await read(engine.submit(case.request()))
            n_steps = engine.counters.steps_submitted
            assert n_steps >= case.n_tokens - 1 + -(-case.n_prompt // chunk), "the prompt ran in one chunk"
            return bits

    return run


async def preempted(case: Case) -> Bits:
    """A request of higher priority takes its pages; the request is recomputed."""
    async with opened(case, parallel=2, chunk=16, kv_rows=case.context) as engine:
        stream = engine.submit(case.request())
        bits = await read(stream, FIRST)
        other = case.request(prompt_ids=case.prompt(9)[:60], priority=1, max_tokens=4)
        await read(engine.submit(other))
        bits += await read(stream)
        must_move(engine, "preemptions")
        return bits


async def forked(case: Case) -> Bits:
    """A fork with the same choice continues equally in the same engine; another fork differs."""
    async with opened(case, parallel=3, depth=2) as engine:  # deeper: the answer ends before the fork
        parent = engine.submit(case.request())
        bits = await read(parent, FIRST)
        child = await engine.fork(parent.id, choice=0)
        other = await engine.fork(parent.id, choice=1)
        known = engine._sequences[child.id].answer_ids[FIRST:]  # retired, not read yet
        rest, mine, _ = await asyncio.gather(read(parent), read(child), read(other))
        assert mine == rest[len(known) :], "the fork differs from its parent"
        must_move(engine, "forks", "copied_units")
        return bits + rest


@dataclass
class Knowing:
    """A proposer that knows the answer and corrupts every fourth draft."""

    answer: Sequence[int]
    n_prompt: int

    async def propose(self, token_ids: Sequence[int], most: int, sampling: SamplingParams) -> Sequence[int]:
        n = len(token_ids) - self.n_prompt
        return [t if (n + i) % 4 else (t + 1) % 50 for i, t in enumerate(self.answer[n : n + most])]


async def speculated(case: Case) -> Bits:
    async with opened(case, programs=[VERIFY]) as engine:
        request = case.request(proposer=lambda: Knowing(case.answer, case.n_prompt))
        bits = await read(engine.submit(request))
        must_move(engine, "drafted", "accepted")
        assert engine.counters.accepted < engine.counters.drafted, "no draft token was rejected"
        return bits


SITUATIONS: Mapping[str, Callable[[Case], Coroutine[Any, Any, Bits]]] = {
    "among 8 others": among_others,
    "run ahead": run_ahead,
    "prefix found": found,
    "begun alike": begun_alike,
    "chunks of 2": chunked(2),
    "chunks of 7": chunked(7),
    "chunks of 16": chunked(16),
    "chunks of 512": chunked(512),
    "preempted": preempted,
    "forked": forked,
    "speculated": speculated,
}
