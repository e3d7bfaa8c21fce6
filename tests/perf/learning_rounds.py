"""The scope of memory over rounds of use: an answer that memory acted on is no past request.

`python -m tests.perf.learning_rounds [NAME ...] [--seed N] [--rounds N]`: 20 corrections beside 600 past
requests; then in each round 300 further requests of the user, of which those in scope count as acted on, and
a new fit. Prints the shares of the further requests, of the retention items and of the held-out prompts in
scope.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from math import inf

from tests.learning.scenarios import SCENARIOS
from tests.learning.scenarios.retention import kept, past_requests, retention
from tests.learning.scenarios.scenario import Scenario
from tests.perf.learning_scenarios import N_PAST, Bench, question_of, read

from camelid.api.thread import EngineThread
from camelid.learning.items import Exchange, Item
from camelid.learning.rows import MOST_PAST
from camelid.learning.trained.memory_scope import MemoryScope, Near
from cria.talk import Talk

N_NEW = 300


def is_near(bench: Bench, near: Near, talk: Talk) -> bool:
    """True for a prompt in scope."""
    (known,) = bench.facts.known([question_of(talk)], lambda: False)
    assert known
    scope = near.scope
    is_in = scope.passes(known.prefilter_features) and scope.has(known.features)
    return is_in and scope.agrees(known.draft(scope.n_drafted))


def share(bench: Bench, near: Near, talks: Sequence[Talk]) -> float:
    return sum(is_near(bench, near, talk) for talk in talks) / len(talks)


def rounds(bench: Bench, made: Scenario, seed: int, n_rounds: int) -> None:
    scope = MemoryScope(bench.facts.side)
    items = [
        Item(
            exchange=bench.exchange(f"event-{i}", event.talk),
            rating=-1,
            correction=read(event.answer),
            id=i + 1,
        )
        for i, event in enumerate(made.events)
    ]
    past: list[Exchange] = [
        bench.exchange(f"past-{i}", talk) for i, talk in enumerate(past_requests(seed, N_PAST))
    ]
    left, held = [talk for talk, _ in kept(made, retention(seed))], [task.talk for task in made.held]
    for number in range(n_rounds + 1):
        near = bench.thread.run(scope.fit(items, past[-MOST_PAST:], inf))
        assert near
        talks = past_requests(1000 * (seed + 1) + number, N_NEW)
        outside = [talk for talk in talks if not is_near(bench, near, talk)]
        past += [bench.exchange(f"new-{number}-{i}", talk) for i, talk in enumerate(outside)]
        shares = (1 - len(outside) / len(talks), share(bench, near, left), share(bench, near, held))
        figures = " | ".join(f"{each:.1%}" for each in shares)
        print(f"| {made.name} | {number} | {near.scope.head.threshold:.3f} | {figures} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", default=["persona", "facts", "order", "recall"])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rounds", type=int, default=10)
    options = parser.parse_args()
    print("| scenario | round | threshold | further | retention | held-out |\n|---|---|---|---|---|---|")
    with EngineThread() as thread:
        bench = Bench(thread, threads=1)
        for name in options.names:
            rounds(bench, SCENARIOS[name](options.seed), options.seed, options.rounds)
        thread.run(bench.llm.aclose())


if __name__ == "__main__":
    main()
