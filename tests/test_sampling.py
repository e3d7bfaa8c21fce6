"""Sampling options: checked, named, never dropped in silence."""

from __future__ import annotations

from typing import Any

import pytest

from camelid.errors import RequestError
from camelid.plan.step import StepSampling
from camelid.sampling import LATER, SamplingParams


def test_defaults_are_llama_cpps() -> None:
    assert SamplingParams().temperature == 0.8


@pytest.mark.parametrize("name", ["top_kk", *sorted(LATER)])
def test_option_that_is_not_there_is_refused_and_the_known_are_named(name: str) -> None:
    with pytest.raises(RequestError, match=rf"'{name}' is .*; known: .*temperature, seed") as caught:
        SamplingParams.from_options({"temperature": 1.0, name: 1})
    assert caught.value.field == name
    assert ("is not available in this version" in str(caught.value)) == (name in LATER)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("temperature", v) for v in (-1, 1e-5, 101, float("nan"), float("inf"), "1", True, None)),
        *(("seed", v) for v in (-1, 2**64, 1.5, "1", True)),
    ],
)
def test_value_out_of_range_is_refused_with_what_was_found(name: str, value: Any) -> None:
    with pytest.raises(RequestError, match=f"{name} is .*, expected") as caught:
        SamplingParams.from_options({name: value})
    assert caught.value.field == name


@pytest.mark.parametrize("value", [0, 0.0, 0.01, 1, 100])
def test_good_temperatures(value: float) -> None:
    assert SamplingParams.from_options({"temperature": value}).temperature == value


def test_seed_is_kept_or_drawn() -> None:
    assert SamplingParams(seed=7).seeded().seed == 7
    drawn = {SamplingParams().seeded().seed for _ in range(4)}
    assert len(drawn) > 1
    assert all(seed is not None and 0 <= seed < 2**32 for seed in drawn)


def test_words_are_the_steps_sampling_row() -> None:
    assert SamplingParams(temperature=0.5, seed=2**40 + 3).words() == StepSampling(
        temperature=0.5, seed=2**40 + 3
    )
