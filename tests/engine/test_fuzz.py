"""A sample of the fuzz scenarios of `python -m tests.support.engine_fuzz`."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest
from tests.support.engine_fuzz import Failure, attempt, fuzz, shrunk
from tests.support.engine_scenario import VERBS, draw_scenario
from tests.support.engine_world import World
from tests.support.exhaustive import share_of

from camelid.engine.metrics import Counters

SCENARIOS = (160, 800)
# The fuzz proves nothing about events that never occur: every counter of the engine, every finish reason of a
# request and every action must occur. Models that encode texts generate none.
ELSEWHERE = {"encoded"}
MUST_HAPPEN = {
    *({field.name for field in fields(Counters)} - ELSEWHERE), *VERBS,
    "length", "stop", "cancelled", "timeout", "failed", "exported", "restored", "ahead", "staged",
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("n_scenarios", share_of(SCENARIOS))
def test_random_scenarios_match_the_oracle_and_leak_nothing(n_scenarios: int) -> None:
    seen, failure = fuzz(range(n_scenarios))
    assert failure is None, f"\n{failure}"
    assert {name for name in MUST_HAPPEN if not seen[name]} == set()
    assert seen["scenarios"] == n_scenarios


def test_failure_is_shrunk_and_readable(monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(self: World) -> None:
        assert not self.seen["cancel"], "planted"

    monkeypatch.setattr(World, "check", wrong)
    scenario = next(s for s in map(draw_scenario, range(100)) if isinstance(attempt(s), Failure))
    failure = attempt(scenario)
    assert isinstance(failure, Failure)
    small = shrunk(failure)
    assert str(small).splitlines()[1].split()[:2] == ["0", "cancel"]
    assert "planted" in str(small)
    assert len(small.scenario.actions) == 1
    assert small.scenario.config == replace(small.scenario.config, model=("kv", "tokens"), depth=1, late=None)
