"""`run`: flags of the engine."""

from __future__ import annotations

import pytest
from click.testing import CliRunner, Result

from camelid import load_tokenizer
from camelid.cli.main import main

ASKED = ("run", "-p", "What is 12 plus 30?", "--backend", "reference")


def said(*args: str) -> Result:
    return CliRunner().invoke(main, [*args])


@pytest.mark.parametrize("more", [("--lookup",), ("-md", "cria"), ("--kv-type", "q8_0")])
def test_the_answer_stays_the_same(more: tuple[str, ...]) -> None:
    plain, other = said(*ASKED), said(*ASKED, *more)
    assert (plain.exit_code, other.exit_code) == (0, 0), other.stderr
    assert other.stdout == plain.stdout != ""


def test_a_full_context_shifts_only_on_request() -> None:
    bans = [f"--logit-bias={i}-inf" for i in load_tokenizer("cria").eos_ids]
    args = (*ASKED, "-c", "48", "-n", "80", *bans)
    refused = said(*args)
    assert refused.exit_code == 1
    assert "exceed the context of 48" in refused.stderr
    shifted = said(*args, "--context-shift", "--keep", "4")
    assert shifted.exit_code == 0, shifted.stderr
    assert "80 tokens (length)" in shifted.stderr


@pytest.mark.parametrize(("more", "words"), [
    (("--keep", "4"), "--keep needs --context-shift"),
    (("--lookup", "-md", "cria"), "--lookup and --model-draft exclude one another"),
])  # fmt: skip
def test_conflicting_flags_are_a_usage_error(more: tuple[str, ...], words: str) -> None:
    result = said(*ASKED, *more)
    assert result.exit_code == 2
    assert words in result.stderr
