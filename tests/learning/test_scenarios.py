"""The nine scenarios: sizes, separation of events from held-out prompts, and the same draw for ever."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.learning.scenarios import SCENARIOS
from tests.learning.scenarios.retention import kept, past_requests, retention
from tests.learning.scenarios.scenario import Scenario, key

ROOT = Path(__file__).parents[2]
SEEDS = range(5)
cases = pytest.mark.parametrize("make", SCENARIOS.values(), ids=SCENARIOS.keys())


@cases
def test_sizes_and_separation(make: Callable[[int], Scenario]) -> None:
    for seed in SEEDS:
        made = make(seed)
        events = {key(event.talk) for event in made.events}
        held = {key(task.talk) for task in made.held}
        assert (len(made.events), len(events)) == (20, 20)
        assert len(made.held) == 100
        assert not events & held


@cases
def test_the_right_answer_passes_and_another_fails(make: Callable[[int], Scenario]) -> None:
    made = make(0)
    for event in made.events:
        assert event.task.passed(event.answer)
        assert not event.task.passed(event.answer + " no")


@cases
def test_retention_keeps_four_hundred_items_apart_from_the_scenario(make: Callable[[int], Scenario]) -> None:
    made, items = make(1), retention(1)
    left = kept(made, items)
    assert len(left) >= 400
    held = {key(task.talk) for task in made.held}
    past = {key(talk) for talk in past_requests(1, 240)}
    assert not held & past
    assert not {key(talk) for talk, _ in left} & past


def test_a_seed_draws_the_same_in_another_process_without_other_libraries() -> None:
    code = (
        "import hashlib, sys\nfrom tests.learning.scenarios import SCENARIOS\n"
        "made = repr([(s.events, s.held) for s in (f(3) for f in SCENARIOS.values())])\n"
        "print(hashlib.sha256(made.encode()).hexdigest())\n"
        "assert not {'torch', 'numpy', 'gguf', 'jinja2', 'tokenizers'} & set(sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env={"PYTHONPATH": "core:."}, capture_output=True, text=True
    )
    here = repr([(made.events, made.held) for made in (make(3) for make in SCENARIOS.values())])
    assert done.stdout.strip() == hashlib.sha256(here.encode()).hexdigest(), done.stderr
