"""The engine's own cost per step: `python -m tests.perf.engine_cost [--profile 8] [--steps 400]`.

Greedy decode steps of 1, 8 and 64 sequences with some hundred rows each, on the null backend. Processor time
without the backend's time, which is measured separately. Target: at most 300 us at 8 sequences. The cost of a
hook is timed separately: it is smaller than the variation between steps.
"""

from __future__ import annotations

import argparse
import asyncio
import cProfile
import json
import pstats
from collections import deque
from collections.abc import Callable, Mapping
from statistics import median
from time import process_time

from camelid.backends.base import Program, Result, Ticket
from camelid.backends.null.backend import NullBackend
from camelid.engine.engine import StepEngine
from camelid.engine.kv_cache import KVCacheManager
from camelid.engine.metrics import StepStats, notify
from camelid.engine.programs import ProgramTable
from camelid.engine.request import Request
from camelid.engine.scheduler import DECODE, MIXED, Limits, program_key
from camelid.plan.plan import PAGE_ROWS, Plan, StateSpec
from camelid.sampling.params import SamplingParams

CONTEXT, PROMPT, VOCAB = 2048, 300, 32000
STATES = (
    StateSpec("kv", "paged", tuple(range(24)), (("k", 512), ("v", 512)), PAGE_ROWS),
    StateSpec("tokens", "ring", (), (("id", 1),), 128),
)
SEQUENCES = (1, 8, 64)
TARGET_US = {8: 300}


class Timed(NullBackend):
    """Sums the seconds inside `run` and `read`."""

    def __init__(self) -> None:
        super().__init__(lambda sequence, position: position % VOCAB, counts=False)
        self.seconds = 0.0

    def run(self, program: Program, step: bytes, inputs: Mapping[str, bytes] | None = None) -> Ticket:
        start = process_time()
        ticket = super().run(program, step, inputs)
        self.seconds += process_time() - start
        return ticket

    async def read(self, ticket: Ticket) -> Result:
        start = process_time()
        result = await super().read(ticket)
        self.seconds += process_time() - start
        return result


async def make_engine(backend: Timed, n: int) -> StepEngine:
    limits = Limits(chunk=512, parallel=n)
    state = KVCacheManager(STATES, context=CONTEXT, n_sequences=n)
    await backend.allocate(STATES, state.sizes())
    programs = ProgramTable()
    for entry in (DECODE, MIXED):
        plan = Plan(key=program_key(entry, limits, PAGE_ROWS), stages=(), states=STATES)
        programs.add(entry, [await backend.compile(plan)])
    return StepEngine(backend, programs, state, limits=limits, vocab_size=VOCAB)


def request(i: int, max_tokens: int) -> Request:
    prompt = tuple((i * 7919 + j * 31) % VOCAB for j in range(PROMPT))
    return Request(prompt_ids=prompt, sampling=SamplingParams(temperature=0.0, seed=0), max_tokens=max_tokens)


async def step_times(n: int, n_steps: int, around: Callable[[], cProfile.Profile | None]) -> list[float]:
    """The engine's own seconds for each of `n_steps` decode steps of `n` sequences."""
    backend = Timed()
    engine = await make_engine(backend, n)
    streams = [engine.submit(request(i, n_steps + 40)) for i in range(n)]
    while engine.counters.decode_rows < 10 * n:
        await engine.step()
    profile, times = around(), list[float]()
    for _ in range(n_steps):
        backend.seconds, start = 0.0, process_time()
        await engine.step()
        times.append(process_time() - start - backend.seconds)
    if profile:
        profile.disable()
    assert engine.counters.decode_rows >= n * n_steps, "a step was no decode step"
    for stream in streams:
        stream.close()
    return times


def hook_us(n_calls: int = 20_000) -> float:
    """Microseconds that one hook adds to each step: collecting the facts, and the call."""
    seen, start = deque[StepStats](maxlen=1), process_time()
    for _ in range(n_calls):
        notify((seen.append,), StepStats(DECODE, 8, 8, 0.1))
    return (process_time() - start) / n_calls * 1e6


def profiled(n: int, n_steps: int) -> None:
    """Prints a profile of `n` sequences."""
    profile = cProfile.Profile()

    def begin() -> cProfile.Profile:
        profile.enable()
        return profile

    asyncio.run(step_times(n, n_steps, begin))
    pstats.Stats(profile).sort_stats("tottime").print_stats(30)


def measured(n: int, n_steps: int) -> dict[str, float | int]:
    times = [t * 1e6 for t in asyncio.run(step_times(n, n_steps, lambda: None))]
    return {"sequences": n, "median us": round(median(times), 1), "worst us": round(max(times), 1)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--profile", type=int, metavar="SEQUENCES")
    options = parser.parse_args()
    if options.profile:
        profiled(options.profile, options.steps)
        return
    for n in SEQUENCES:
        row = measured(n, options.steps)
        print(json.dumps(row | ({"target us": TARGET_US[n]} if n in TARGET_US else {})))
    print(json.dumps({"a hook": 1, "mean us": round(hook_us(), 2)}))


if __name__ == "__main__":
    main()
