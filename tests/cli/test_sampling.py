"""Sampling flags of the command line: llama.cpp's names, validated before the model is opened."""

from __future__ import annotations

import re
from dataclasses import fields
from typing import Any

import click
import pytest
from click.testing import CliRunner

from camelid.cli.main import main
from camelid.cli.sampling_flags import FLAGS, OPTIONS, read_sampling, sampling_options
from camelid.sampling.params import ORDERS, SamplingParams

# Flag of llama.cpp's common/arg.cpp, a value, and the resulting request option.
CASES: list[tuple[tuple[str, ...], dict[str, Any]]] = [
    (("--temp", "0"), {"temperature": 0.0}),
    (("--temperature", "1.5"), {"temperature": 1.5}),
    (("--top-k", "7"), {"top_k": 7}),
    (("--top-p", "0.5"), {"top_p": 0.5}),
    (("--min-p", "0.1"), {"min_p": 0.1}),
    (("--typical", "0.9"), {"typical_p": 0.9}),
    (("--typical-p", "0.9"), {"typical_p": 0.9}),
    (("--top-nsigma", "1.5"), {"top_n_sigma": 1.5}),
    (("--top-n-sigma", "-1"), {"top_n_sigma": -1.0}),
    (("--repeat-penalty", "1.1"), {"repeat_penalty": 1.1}),
    (("--repeat-last-n", "-1"), {"repeat_last_n": -1}),
    (("--presence-penalty", "-0.5"), {"presence_penalty": -0.5}),
    (("--frequency-penalty", "0.5"), {"frequency_penalty": 0.5}),
    (("--dry-multiplier", "0.8"), {"dry_multiplier": 0.8}),
    (("--dry-base", "2"), {"dry_base": 2.0}),
    (("--dry-allowed-length", "3"), {"dry_allowed_length": 3}),
    (("--dry-penalty-last-n", "32"), {"dry_penalty_last_n": 32}),
    (("--dry-sequence-breaker", "\\n", "--dry-sequence-breaker", "a\\\\n"),
     {"dry_sequence_breakers": ("\n", "a\\n")}),
    (("--dry-sequence-breaker", "none"), {"dry_sequence_breakers": ()}),
    (("--xtc-probability", "0.5"), {"xtc_probability": 0.5}),
    (("--xtc-threshold", "0.2"), {"xtc_threshold": 0.2}),
    (("--dynatemp-range", "0.3"), {"dynatemp_range": 0.3}),
    (("--dynatemp-exp", "2"), {"dynatemp_exponent": 2.0}),
    (("--mirostat", "2"), {"mirostat": 2}),
    (("--mirostat-lr", "0.2"), {"mirostat_eta": 0.2}),
    (("--mirostat-ent", "3"), {"mirostat_tau": 3.0}),
    (("--logit-bias", "15043+1", "-l", "7-0.5", "-l", "9-inf"),
     {"logit_bias": ((15043, 1.0), (7, -0.5), (9, float("-inf")))}),
    (("--samplers", "top_k;temp"), {"order": ("top_k", "temperature")}),
    (("--samplers", "temperature-first"), {"order": ORDERS["temperature-first"]}),
    (("--seed", "5"), {"seed": 5}),
    (("-s", "-1"), {}),
    ((), {}),
]  # fmt: skip
WRONG = [
    (("--temp", "-1"), "temperature is -1.0, expected"),
    (("--top-k", "x"), "'x' is not a valid integer"),
    (("--top-p", "1.5"), "top_p is 1.5, expected"),
    (("--min-p", "nan"), "min_p is nan, expected"),
    (("--repeat-penalty", "0"), "repeat_penalty is 0.0, expected"),
    (("--mirostat", "3"), "mirostat is 3, expected"),
    (("--samplers", "top_k;infill"), "order is 'top_k;infill', expected"),
    (("--samplers", ""), "order is '', expected"),
    (("--logit-bias", "+1"), "'.1', expected ID.BIAS"),
    (("--logit-bias", "5"), "'5', expected ID.BIAS"),
    (("--logit-bias", "5+x"), "'5.x', expected ID.BIAS"),
    (("--logit-bias", "5+101"), "logit_bias is list, expected"),
    (("-l", "5+1", "-l", "5-1"), "logit_bias is list, expected .* each once"),
    (("--dry-sequence-breaker", ""), "dry_sequence_breakers is list, expected"),
    (("--seed", "-2"), "seed is -2, expected"),
]  # fmt: skip


@pytest.mark.parametrize(("words", "options"), CASES, ids=lambda case: " ".join(case))
def test_flags_become_options(words: tuple[str, ...], options: dict[str, Any]) -> None:
    found: list[Any] = []

    @click.command()
    @sampling_options
    @click.option("--other")
    def command(**given: Any) -> None:
        found.extend((read_sampling(given), given))

    result = CliRunner().invoke(command, words)
    assert result.exit_code == 0, result.output
    assert found == [options, {"other": None}]
    SamplingParams.from_options(found[0])


@pytest.mark.e2e
@pytest.mark.parametrize(
    ("words", "says"), WRONG, ids=lambda case: case if isinstance(case, str) else " ".join(case)
)
def test_an_invalid_value_is_refused_before_a_model_is_opened(words: tuple[str, ...], says: str) -> None:
    result = CliRunner().invoke(main, ["run", "there-is-no-such.gguf", "-p", "hi", *words])
    assert result.exit_code == 2
    assert re.search(says, result.output.replace("\n", " ")), result.output
    assert "such.gguf" not in result.output


def test_every_option_but_two_has_a_flag() -> None:
    """The two exceptions need callers that read more than text."""
    names = {option for _, option, _, _ in FLAGS} | {"seed", "logit_bias", "dry_sequence_breakers"}
    assert {field.name for field in fields(SamplingParams)} - names == {"logprobs", "min_keep"}
    assert len(OPTIONS) == len(names)


@pytest.mark.e2e
def test_run_accepts_the_flags() -> None:
    words = ["run", "--backend", "reference", "-p", "2+2=", "-n", "3"]
    greedy = CliRunner().invoke(main, [*words, "--temp", "0"])
    narrow = CliRunner().invoke(main, [*words, "--top-k", "1", "--temp", "5", "--seed", "1"])
    wide = CliRunner().invoke(main, [*words, "--samplers", "temperature", "--temp", "50", "--seed", "1"])
    assert (greedy.exit_code, narrow.exit_code, wide.exit_code) == (0, 0, 0)
    assert greedy.stdout == narrow.stdout != wide.stdout
