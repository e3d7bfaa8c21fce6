"""Random mixes of requests in one engine on the rig: arrivals, priorities, cancellations, preemption, a
prefix cache and row buckets change no bit of an answer.

A mix draws its requests from a few that were answered alone. Kernels keep one order of sums for any number of
rows, so the bits also survive the schedule.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from tests.cuda.rig import open_rig
from tests.engine.test_promises import opened_case
from tests.support import promise_runs
from tests.support.exhaustive import share_of
from tests.support.gguf_files import write_tiny_llama
from tests.support.promise_runs import Bits, Case, opened, read

from camelid.engine.engine import StepEngine
from camelid.engine.request import Request
from camelid.sampling.params import SamplingParams
from camelid_native.cuda.backend import CudaBackend, Sizes

pytestmark = [pytest.mark.parity, pytest.mark.slow]

BUCKETS = Sizes(chunk=16)  # with the row buckets of the backend
BACKENDS: Any = promise_runs.BACKENDS
PARALLEL, N_KNOWN, N_REQUESTS = 9, 8, 12
SAMPLINGS: Sequence[dict[str, Any]] = (
    {"temperature": 0.0},
    {"temperature": 1.2},
    {"temperature": 1.2, "repeat_penalty": 3.0},
)


@dataclass(frozen=True)
class Known:
    """A request with its answer alone."""

    request: Request
    bits: Bits


def requests(case: Case) -> list[Request]:
    """Requests of different lengths, some with a common beginning."""
    rng = random.Random(5)
    ways = [SamplingParams(seed=i, **how) for i, how in enumerate(SAMPLINGS)]
    return [
        case.request(
            prompt_ids=case.prompt(i // 3)[: rng.choice((3, 11, 37, 60))],
            max_tokens=rng.randint(4, 12),
            sampling=ways[i % len(ways)],
        )
        for i in range(N_KNOWN)
    ]


async def answers_alone(case: Case) -> list[Known]:
    found: list[Known] = []
    for request in requests(case):
        async with opened(case) as engine:
            found.append(Known(request, await read(engine.submit(request))))
    return found


async def mix(engine: StepEngine, known: Sequence[Known], seed: int) -> None:
    """Submits requests at random steps; some are cancelled, some go first."""
    rng = random.Random(seed)

    async def one() -> None:
        case = rng.choice(known)
        for _ in range(rng.randrange(6)):
            await asyncio.sleep(0)
        stream = engine.submit(replace(case.request, priority=rng.randrange(2)))
        n = rng.randrange(1, len(case.bits)) if rng.random() < 0.2 else None
        got = await read(stream, n)
        if n is not None:
            engine.cancel(stream.id)
        assert got == case.bits[: len(got)] and (n or len(got) == len(case.bits)), (seed, case.request)

    await asyncio.gather(*(one() for _ in range(N_REQUESTS)))


async def run_mixes(case: Case, n_mixes: int) -> Counter[int]:
    """Runs mixes one after the other. Returns the steps by the capacity of their programs."""
    known, capacities = await answers_alone(case), Counter[int]()
    own = CudaBackend.run

    def counted(self: CudaBackend, program: Any, *rest: Any) -> Any:
        capacities[program.key.capacity.rows] += 1
        return own(self, program, *rest)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CudaBackend, "run", counted)
        patch.setitem(BACKENDS, "cuda", lambda: open_rig(sizes=BUCKETS))
        async with opened(case, parallel=PARALLEL, chunk=BUCKETS.chunk, kv_rows=2 * case.context) as engine:
            for seed in range(n_mixes):
                await mix(engine, known, seed)
            for name in ("preemptions", "prefix_hits", "discarded_rows"):
                assert getattr(engine.counters, name), f"no {name}"
    return capacities


@pytest.mark.parametrize(("wave", "n_mixes"), share_of([("32", 4), ("32", 200), ("64", 200)]))
def test_mixes_change_no_bit(
    wave: str, n_mixes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EMU_WAVE", wave)
    monkeypatch.setitem(BACKENDS, "cuda", open_rig)
    write_tiny_llama(tmp_path / "tiny.gguf", seed=3, hidden=64, head_dim=16, ffn=96, context=512, type="q4_0")
    case = opened_case(tmp_path / "tiny.gguf", backend="cuda")
    capacities = asyncio.run(run_mixes(case, n_mixes))
    assert {1, 2, 4, 8, BUCKETS.chunk} <= capacities.keys()
