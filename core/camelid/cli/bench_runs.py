"""Timed runs of `camelid bench` cases. The clock is a parameter, so that tests can simulate time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from hashlib import sha256

from camelid.api.llm import LLM
from camelid.api.runner import Runner
from camelid.backends.base import Backend
from camelid.cli.bench_cases import Case
from camelid.loading.options import LoadOptions
from camelid.loading.start import Progress, start
from camelid.model.arch import Model

Clock = Callable[[], float]  # seconds, monotonic


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One timed run; `n_tokens` counts all streams."""

    seconds: float
    n_tokens: int
    ttft_s: float

    @property
    def tps(self) -> float:
        """Tokens per second over all streams."""
        return self.n_tokens / self.seconds


@dataclass(frozen=True, slots=True)
class Bench:
    """A loaded model for timed runs."""

    llm: LLM
    backend: Backend
    model_id: str
    clock: Clock

    async def run(self, case: Case, repetition: int) -> Run:
        """Runs a case once; rows before the timed ones are prefilled first, untimed."""
        prompts = [case.prompt(i, repetition, self.llm.spec.vocab_size) for i in range(case.batch)]
        if case.depth:
            for prompt in prompts:
                await self._first_token(prompt[: case.depth])
        return await (self._prefill(prompts) if case.kind == "pp" else self._decode(prompts, case.n))

    async def _first_token(self, prompt: list[int]) -> tuple[float, int]:
        """The time of a prompt's first token, and the engine's prefilled rows so far."""
        await self.llm.agenerate(prompt, max_tokens=1, temperature=0.0, ignore_eos=True)
        return self.clock(), self.llm.counters.prefill_rows

    async def _prefill(self, prompts: list[list[int]]) -> Run:
        """Times prefill from the requests to the last stream's first token; counts computed rows only."""
        start, n_before = self.clock(), self.llm.counters.prefill_rows
        end, n_after = max(await asyncio.gather(*map(self._first_token, prompts)))
        return Run(seconds=end - start, n_tokens=n_after - n_before, ttft_s=end - start)

    async def _decode(self, prompts: list[list[int]], n: int) -> Run:
        """Times n tokens of the last stream after its first; counts the rows of all streams in that time."""
        room, start = self.llm.context, self.clock()
        streams = [
            self.llm.submit(prompt, max_tokens=room - len(prompt), temperature=0.0, ignore_eos=True)
            for prompt in prompts
        ]
        try:
            for stream in streams:
                await anext(stream)
            first, n_before = self.clock(), self.llm.counters.retired_decode_rows
            for _ in range(n):
                await anext(streams[-1])
            seconds, n_after = self.clock() - first, self.llm.counters.retired_decode_rows
        finally:
            for stream in streams:
                await stream.aclose()
        return Run(seconds=seconds, n_tokens=n_after - n_before, ttft_s=first - start)


@asynccontextmanager
async def open_bench(
    path: str, options: LoadOptions, clock: Clock, progress: Progress | None = None
) -> AsyncGenerator[Bench]:
    """Loads a model for timed runs."""
    running = await start(path, options, progress)
    async with LLM(running, Runner()) as llm:
        yield Bench(llm, running.backend, model_id(running.file.model), clock)


def model_id(model: Model) -> str:
    """A digest of the weights' names, types and shapes: equal for files of equal cost."""
    lines = sorted(f"{weight.name} {weight.type} {weight.shape}" for weight in model.weights.values())
    return sha256("\n".join(lines).encode()).hexdigest()[:16]
