"""The pace of a step: rows of a prompt beside generating sequences, on a device with known times."""

from __future__ import annotations

import pytest

from camelid.engine.pace import MIN_PREFILL_ROWS, PrefillBudget

CHUNK, GENERATION_S = 512, 0.012


def step_s(depth: int, n_rows: int) -> float:
    """A 135M model on two cores: a row's own work, its attention, and the read of the KV cache per step."""
    return GENERATION_S + n_rows * (0.7e-3 + depth * 0.5e-6) + depth * 1e-6


def times_of(budget: PrefillBudget, n_prompt: int, depth: int = 0) -> list[float]:
    """The times of a prompt's steps beside generating sequences."""
    times: list[float] = []
    budget.observe_generation(GENERATION_S)
    while depth < n_prompt:
        rows = budget.rows(depth, budget.seconds, CHUNK)
        n_rows = min(max(rows, MIN_PREFILL_ROWS), n_prompt - depth)
        times.append(step_s(depth, n_rows))
        budget.observe(depth, n_rows, times[-1], generates=True)
        depth += n_rows
    return times


def test_steps_of_a_long_prompt_keep_the_budget_at_any_depth() -> None:
    budget = PrefillBudget(0.1)
    first, *times = times_of(budget, 32_000)
    assert first == step_s(0, CHUNK), "nothing is known before the first step"
    assert max(times) < 0.15
    assert sorted(times)[len(times) // 2] > 0.08, "the budget is not used"


def test_a_deep_prompt_whose_beginning_is_cached_starts_with_a_short_step() -> None:
    budget = PrefillBudget(0.1)
    times_of(budget, 1000)
    assert max(times_of(budget, 32_000, depth=31_000)) < 0.15


def test_the_rest_of_a_prompt_in_a_step_of_its_own_does_not_slow_the_next() -> None:
    budget = PrefillBudget(0.1)
    times_of(budget, 300)
    before = budget.rows(0, budget.seconds, CHUNK)
    for _ in range(50):
        budget.observe(0, 2, step_s(0, 2), generates=True)
    assert budget.rows(0, budget.seconds, CHUNK) == pytest.approx(before, abs=2)


def test_prompts_have_half_of_a_slow_device() -> None:
    budget = PrefillBudget(0.1)
    budget.observe_generation(0.5)
    assert budget.seconds == 0.5


def test_an_unknown_depth_has_the_time_of_its_nearest_neighbour() -> None:
    budget = PrefillBudget(0.1)
    assert budget.row_s(100) == 0.0
    budget.observe(1000, 10, 1.0, generates=False)
    assert budget.row_s(10) == 0.1
    assert budget.row_s(1023) == 0.1
    assert budget.row_s(4096) == pytest.approx(0.4)
