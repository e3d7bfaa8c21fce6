"""Each kernel against the reference on the gate's cases, and its bits alone and in company (promise A)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from itertools import islice

import pytest
from tests.metal.on_rig import METAL, RigBackend
from tests.metal.planted import ERRORS, Error, planted
from tests.metal.rig import Rig
from tests.support.exhaustive import exhaustive

from camelid.backends.common.codecs import CODECS
from camelid.backends.proof.cases import PlannedCase, all_cases
from camelid.backends.proof.gate import FAILED, PASSED, judge

pytestmark = pytest.mark.parity

WHOLE_TYPES = ("q8_0", "q4_k")  # types whose cases all run in ordinary runs; others run linear's first
TYPED = ("linear", "linear_glu", "embed")  # ops with cases of each type


def groups() -> list[object]:
    """An op, a weight type ("" for cases of no type of their own), and how many of the cases run."""
    found: list[object] = [(op, "", None) for op in METAL]
    for op in TYPED:
        for weight_type in CODECS:
            is_whole = weight_type in WHOLE_TYPES
            found.append((op, weight_type, None) if is_whole else exhaustive((op, weight_type, None)))
    return [*found, *(("linear", weight_type, 1) for weight_type in CODECS if weight_type not in WHOLE_TYPES)]


def cases_of(op: str, weight_type: str) -> Iterator[PlannedCase]:
    types = [weight_type] if weight_type else []
    return (planned for planned in all_cases(types, only=op) if planned.weight_type == weight_type)


@pytest.fixture(scope="module")
def backend() -> RigBackend:
    return RigBackend()


@pytest.mark.parametrize(("op", "weight_type", "most"), groups())
def test_kernel_matches_the_reference(
    op: str, weight_type: str, most: int | None, backend: RigBackend
) -> None:
    made = (planned.made() for planned in islice(cases_of(op, weight_type), most))
    outcomes = [asyncio.run(judge(backend, case)) for case in made]
    assert [str(outcome) for outcome in outcomes if outcome.status != PASSED] == []


@pytest.mark.parametrize("error", ERRORS, ids=str)
def test_a_planted_error_is_noticed(error: Error) -> None:
    backend = RigBackend(Rig())
    with planted(error.file, error.old, error.new):
        outcomes = (
            asyncio.run(judge(backend, planned.made()))
            for planned in all_cases((error.weight_type,), only=error.op)
        )
        assert any(outcome.status == FAILED for outcome in outcomes)
