"""One case of `camelid bench`, run once and timed.

Every clock is passed in, so that tests can count time instead of measuring it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from hashlib import sha256
from typing import cast

from camelid.api.llm import LLM
from camelid.api.runner import Runner
from camelid.backends.base import Backend, Program, Result, Ticket
from camelid.cli.bench_cases import Case
from camelid.loading.start import LoadOptions, Progress, start
from camelid.model.arch import Model

Clock = Callable[[], float]  # seconds, only ever more


class MeteredBackend:
    """A backend, and the seconds that its `run` and `read` took; what is left of a run is the engine's."""

    def __init__(self, backend: Backend, clock: Clock) -> None:
        self.seconds = 0.0
        self._backend = backend
        self._clock = clock

    def __getattr__(self, name: str) -> object:
        return getattr(self._backend, name)

    def run(self, program: Program, step: bytes, inputs: Mapping[str, bytes] | None = None) -> Ticket:
        """Enqueues the step."""
        start = self._clock()
        try:
            return self._backend.run(program, step, inputs)
        finally:
            self.seconds += self._clock() - start

    async def read(self, ticket: Ticket) -> Result:
        """Waits for the step."""
        start = self._clock()
        try:
            return await self._backend.read(ticket)
        finally:
            self.seconds += self._clock() - start

    @property
    def dispatches(self) -> int | None:
        """Kernels that the device was told to run so far; None for a backend that has no such count."""
        return self._backend.memory().counters.get("dispatches")

    def as_backend(self) -> Backend:
        """Itself, as what it stands for."""
        return cast("Backend", self)  # __getattr__ has the rest of the protocol


@dataclass(frozen=True, slots=True)
class Point:
    """What the meters showed at one moment."""

    clock: float
    backend_s: float
    dispatches: int | None
    prefill_rows: int
    decode_rows: int
    retired_decode_rows: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One timed run. `n_tokens` counts all streams; `backend_s` is what of `seconds` the backend took."""

    seconds: float
    n_tokens: int
    ttft_s: float
    backend_s: float | None = None
    dispatches_per_token: float | None = None

    @property
    def tps(self) -> float:
        """Tokens a second, over all streams."""
        return self.n_tokens / self.seconds


class Bench:
    """A loaded model whose runs are timed."""

    @property
    def backend(self) -> Backend:
        """What runs the model, behind the meter."""
        return self._meter.as_backend()

    def __init__(self, llm: LLM, meter: MeteredBackend, clock: Clock, model_id: str) -> None:
        self.llm = llm
        self.model_id = model_id
        self._meter = meter
        self._clock = clock

    async def run(self, case: Case, repetition: int) -> Run:
        """One run of the case; what it holds before is computed first, untimed."""
        prompts = [case.prompt(i, repetition, self.llm.spec.vocab_size) for i in range(case.batch)]
        if case.depth:
            for prompt in prompts:
                await self._first_token(prompt[: case.depth])
        return await (self._prefill(prompts) if case.kind == "pp" else self._decode(prompts, case.n))

    def _point(self) -> Point:
        meter = self._meter
        counters = self.llm.counters
        rows = (counters.prefill_rows, counters.decode_rows, counters.retired_decode_rows)
        return Point(self._clock(), meter.seconds, meter.dispatches, *rows)

    async def _first_token(self, prompt: list[int]) -> Point:
        """The meters when a prompt's first token has come."""
        await self.llm.agenerate(prompt, max_tokens=1, temperature=0.0, ignore_eos=True)
        return self._point()

    async def _prefill(self, prompts: list[list[int]]) -> Run:
        """From asking to the last stream's first token. Rows that a cache had are not counted."""
        begun = self._point()
        points = await asyncio.gather(*map(self._first_token, prompts))
        ended = max(points, key=lambda point: point.clock)
        n_tokens, seconds = ended.prefill_rows - begun.prefill_rows, ended.clock - begun.clock
        return Run(
            seconds=seconds,
            n_tokens=n_tokens,
            ttft_s=seconds,
            backend_s=ended.backend_s - begun.backend_s,
            dispatches_per_token=_dispatches(begun, ended, per=n_tokens),
        )

    async def _decode(self, prompts: list[list[int]], n: int) -> Run:
        """From when every stream has a token until the last has `n` more; the rows of all in between."""
        start = self._clock()
        streams = [
            self.llm.submit(
                prompt, max_tokens=self.llm.context - len(prompt), temperature=0.0, ignore_eos=True
            )
            for prompt in prompts
        ]
        try:
            for stream in streams:
                await anext(stream)
            begun = self._point()
            for _ in range(n):
                await anext(streams[-1])
            ended = self._point()
        finally:
            for stream in streams:
                await stream.aclose()
        n_submitted = ended.decode_rows - begun.decode_rows  # more may be in flight at the end than before
        return Run(
            seconds=ended.clock - begun.clock,
            n_tokens=ended.retired_decode_rows - begun.retired_decode_rows,
            ttft_s=begun.clock - start,
            backend_s=ended.backend_s - begun.backend_s,
            dispatches_per_token=_dispatches(begun, ended, per=n_submitted),
        )


def _dispatches(begun: Point, ended: Point, *, per: int) -> float | None:
    if begun.dispatches is None or ended.dispatches is None:
        return None
    return (ended.dispatches - begun.dispatches) / per


@asynccontextmanager
async def open_bench(
    path: str, options: LoadOptions, clock: Clock, progress: Progress | None = None
) -> AsyncGenerator[Bench]:
    """Loads a model behind a meter."""
    running = await start(path, options, progress)
    meter = MeteredBackend(running.backend, clock)
    running.engine.backend = meter.as_backend()
    async with LLM(running, Runner()) as llm:
        yield Bench(llm, meter, clock, model_id(running.file.model))


def model_id(model: Model) -> str:
    """The same for files that take the same work: a digest of the weights' names, types and shapes."""
    lines = sorted(f"{weight.name} {weight.type} {weight.shape}" for weight in model.weights.values())
    return sha256("\n".join(lines).encode()).hexdigest()[:16]
