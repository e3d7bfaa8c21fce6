"""Random requests, cancellations and faults against the engine.

`python -m tests.support.engine_fuzz --n 10000` runs 10,000 scenarios.

Each scenario is drawn from a seed. A failing scenario is shrunk to few actions and printed with its seed.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from time import perf_counter

from tests.support.engine_scenario import Ask, Config, Scenario, draw_scenario
from tests.support.engine_world import World

MAX_SECONDS = 5.0  # limit of one scenario, which needs milliseconds
MAX_TRIALS = 300  # limit of the search for a smaller failure


@dataclass(frozen=True)
class Failure:
    """A scenario that failed, with its error."""

    scenario: Scenario
    error: Exception

    def __str__(self) -> str:
        return f"{self.scenario}\n{type(self.error).__name__}: {self.error}"


async def _bounded(scenario: Scenario) -> Counter[str]:
    async with asyncio.timeout(MAX_SECONDS):
        return await World(scenario.config).run(scenario)


def attempt(scenario: Scenario) -> Counter[str] | Failure:
    """Runs a scenario. Returns its event counts, or its failure."""
    try:
        return asyncio.run(_bounded(scenario))
    except Exception as error:
        return Failure(scenario, error)


def shrunk(failure: Failure) -> Failure:
    """A failure of the same kind with fewer actions, plainer requests and a plainer engine."""
    trials = MAX_TRIALS
    progress = True
    while progress and trials > 0:
        progress = False
        for smaller in simpler(failure.scenario):
            trials -= 1
            outcome = attempt(smaller)
            if isinstance(outcome, Failure) and type(outcome.error) is type(failure.error):
                failure, progress = outcome, True
                break
            if trials <= 0:
                break
    return failure


def simpler(scenario: Scenario) -> Iterator[Scenario]:
    """Scenarios one step simpler, the largest simplification first."""
    actions = scenario.actions
    size = len(actions) // 2
    while size:
        for at in range(0, len(actions), size):
            yield replace(scenario, actions=actions[:at] + actions[at + size :])
        size //= 2
    for i, action in enumerate(actions):
        for ask in plainer_asks(action.ask) if action.ask else ():
            yield replace(scenario, actions=(*actions[:i], replace(action, ask=ask), *actions[i + 1 :]))
    for config in plainer_configs(scenario.config):
        yield replace(scenario, config=config)


def plainer_asks(ask: Ask) -> Iterator[Ask]:
    plain = Ask(prompt=ask.prompt)
    for name, value in vars(plain).items():
        if getattr(ask, name) != value:
            yield replace(ask, **{name: value})
    if len(ask.prompt) > 1:
        yield replace(ask, prompt=ask.prompt[: len(ask.prompt) // 2])
        yield replace(ask, prompt=ask.prompt[:-1])
    if ask.max_tokens > 1:
        yield replace(ask, max_tokens=ask.max_tokens // 2)


def plainer_configs(config: Config) -> Iterator[Config]:
    for name, value in (("late", None), ("n_stages", 1), ("depth", 1), ("model", ("kv", "tokens"))):
        if getattr(config, name) != value:
            yield replace(config, **{name: value})
    if config.depth > 1:
        yield replace(config, depth=config.depth - 1)


def fuzz(seeds: Iterable[int]) -> tuple[Counter[str], Failure | None]:
    """Event counts of all scenarios up to the first failure, and that failure."""
    seen: Counter[str] = Counter()
    for seed in seeds:
        outcome = attempt(draw_scenario(seed))
        if isinstance(outcome, Failure):
            print(f"seed {seed} failed; shrinking", file=sys.stderr)
            return seen, shrunk(outcome)
        seen += outcome
        seen["scenarios"] += 1
    return seen, None


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--n", type=int, default=10_000, help="number of scenarios")
    parser.add_argument("--seed", type=int, default=0, help="seed of the first scenario, counting up")
    options = parser.parse_args()
    start = perf_counter()
    seen, failure = fuzz(range(options.seed, options.seed + options.n))
    for name, n in sorted(seen.items()):
        print(f"{n:10,} {name}")
    print(f"{seen['scenarios']} scenarios from seed {options.seed} in {perf_counter() - start:.0f} s")
    if failure:
        print(failure)
    return 1 if failure else 0


if __name__ == "__main__":
    raise SystemExit(main())
