"""Cost of counting: `python -m tests.perf.observer_cost`. Nanoseconds per token, per step and per scrape.

A token is a batch of one event of one choice; 64 requests are under way.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from time import perf_counter_ns
from types import SimpleNamespace
from typing import Any, cast

from camelid.engine.metrics import Counters, StepStats
from camelid.requests.output_text import Event
from camelid.server.metrics.live import ModelTally
from camelid.server.metrics.tally import Tally
from camelid.server.service.host import Batch
from camelid.server.service.service import Started

N, REQUESTS, REPEATS = 20_000, 64, 7


class Job(SimpleNamespace):
    """Hashable by identity, as `Started` is."""

    def __hash__(self) -> int:
        return id(self)


def started(tally: Tally) -> Started:
    """A job under way."""
    engine = SimpleNamespace(counters=Counters(), hooks=[])
    found = Job(
        service=SimpleNamespace(name="m", host=SimpleNamespace(running=SimpleNamespace(engine=engine))),
        job=SimpleNamespace(endpoint="e", n=1), request=SimpleNamespace(n_prompt=10),
        place=SimpleNamespace(entered=0.0),
    )  # fmt: skip
    tally.submitted(cast(Started, found))
    return cast(Started, found)


def nanoseconds(call: Callable[[int], object]) -> float:
    """The least mean of a call over several runs."""
    means = list[float]()
    for _ in range(REPEATS):
        start = perf_counter_ns()
        for i in range(N):
            call(i)
        means.append((perf_counter_ns() - start) / N)
    return round(min(means))


def main() -> None:
    tally, model = Tally(), ModelTally()
    jobs = [started(tally) for _ in range(REQUESTS)]
    batch = Batch(0, [Event("x", 1, 0.0)])
    facts = StepStats("decode", 64, 64, 0.005)
    row: dict[str, Any] = {
        "ns a token": nanoseconds(lambda i: tally.advanced(jobs[i % REQUESTS], batch)),
        "ns a step": nanoseconds(lambda i: model.step(facts)),
        "ns of an empty call": nanoseconds(lambda i: jobs[i % REQUESTS]),
    }
    print(json.dumps(row))


if __name__ == "__main__":
    main()
