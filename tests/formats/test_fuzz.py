"""A short run of `make fuzz`: damaged files raise clear errors at low cost."""

from __future__ import annotations

import tracemalloc
from collections import Counter
from collections.abc import Iterator
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.fuzz.__main__ import fuzz
from tests.fuzz.run import judge, run_case
from tests.fuzz.targets import TARGETS, Target
from tests.support.exhaustive import share_of

from camelid.errors import ModelFormatError

pytestmark = pytest.mark.faults

SLOW_OR_LARGE = (HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example)
# Least number of cases that must be read, and that must be refused, so that the run proves both.
LEAST = 1


@pytest.fixture(autouse=True)
def traced() -> Iterator[None]:
    tracemalloc.start()
    yield
    tracemalloc.stop()


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
@pytest.mark.parametrize("n_cases", share_of([250, 500]))
def test_damaged_files_raise_clear_errors(target: Target, n_cases: int) -> None:
    """A fixed set of cases, and hypothesis's, which it also shrinks."""
    kinds: Counter[str] = Counter()
    for n in range(n_cases):
        _, outcome = run_case(target, Random(f"{target.name}/{n}"))
        assert outcome.kind != "finding", outcome.why
        kinds[outcome.kind] += 1
    assert kinds["ModelFormatError"] >= LEAST
    assert kinds["read"] >= LEAST


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
@pytest.mark.parametrize("n_examples", share_of([8, 100]))
def test_hypothesis_finds_nothing(target: Target, n_examples: int) -> None:
    @settings(max_examples=n_examples, derandomize=True, deadline=None, suppress_health_check=SLOW_OR_LARGE)
    @given(rng=st.randoms(use_true_random=False))
    def finds_nothing(rng: Random) -> None:
        _, outcome = run_case(target, rng)
        assert outcome.kind != "finding", outcome.why

    finds_nothing()


def refuse(message: str) -> object:
    raise ModelFormatError(message)


def hold(n: int) -> None:
    assert len(bytearray(n)) == n


PLANTED = {
    "wrong class": (lambda data: {}["x"], "KeyError at <lambda>"),
    "wrong class, deeper": (lambda data: hold(-1), "ValueError"),
    "recursion": (lambda data: PLANTED["recursion"][0](data), "RecursionError"),
    "escape codes": (lambda data: refuse("a \x1b[2J"), "a message that holds control characters"),
    "long message": (lambda data: refuse("x" * 1001), "a message of 1001 characters"),
    "memory": (lambda data: hold(65 << 20), "a file of 1 bytes took 65 MiB"),
}


@pytest.mark.parametrize("name", PLANTED)
def test_planted_faults_are_found(name: str) -> None:
    parse, why = PLANTED[name]
    target = Target(name, lambda rng: b"x", parse)
    _, outcome = run_case(target, Random(0))
    assert outcome.kind == "finding"
    assert why in outcome.why


def test_the_command_counts_cases_and_stores_findings(
    monkeypatch: pytest.MonkeyPatch, tmp_path: object
) -> None:
    monkeypatch.setattr("tests.fuzz.__main__.KEPT", tmp_path)
    bad = Target("bad one", lambda rng: b"bytes", lambda data: {}["x"])
    tracemalloc.stop()
    tally = fuzz([bad, TARGETS[0]], minutes=0.005, seed=1)["bad one"]
    tracemalloc.start()
    assert tally.kinds["finding"] == tally.kinds.total() > 0
    assert [path.read_bytes() for path in tally.findings.values()] == [b"bytes"]


def test_a_readable_file_is_no_finding() -> None:
    assert judge(Target("t", lambda rng: b"", len), b"") == ("read", "")
