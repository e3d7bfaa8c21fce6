"""Each kernel against the reference on the gate's cases, and its bits alone and in company (promise A)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.metal.on_rig import METAL, outcomes
from tests.metal.planted import ERRORS, Error, planted
from tests.metal.rig import Rig
from tests.support.exhaustive import every, exhaustive, share_of

from camelid.backends.common.codecs import CODECS
from camelid.backends.proof.cases import PlannedCase, all_cases
from camelid.backends.proof.gate import FAILED, PASSED
from camelid_native.mlx.metal import launch
from camelid_native.mlx.metal.launch import CODEC_PARTS

FOLDER = Path(launch.__file__).parent
BARRIER = "threadgroup_barrier(mem_flags::mem_threadgroup);  // others"
pytestmark = pytest.mark.parity

WHOLE_TYPES = ("q8_0", "q4_k")  # types whose cases all run in ordinary runs; others run linear's first
ALL = slice(None)
TYPED = ("linear", "linear_glu", "linear_experts", "linear_heads", "embed")  # ops with cases of each type


def groups() -> list[object]:
    """An op, a weight type ("" for cases of no type of their own), and the numbers of the cases that run."""
    found: list[object] = [(op, "", ALL) for op in METAL if op != "attention"]
    found += share_of([("attention", "", slice(first, None, 4)) for first in range(4)])  # the most
    for op in TYPED:
        for weight_type in CODECS:
            is_whole = weight_type in WHOLE_TYPES
            found.append((op, weight_type, ALL) if is_whole else exhaustive((op, weight_type, ALL)))
    few = (weight_type for weight_type in CODECS if weight_type not in WHOLE_TYPES)
    return [*found, *(("linear", weight_type, slice(1)) for weight_type in few)]


def cases_of(op: str, weight_type: str) -> Iterator[PlannedCase]:
    types = [weight_type] if weight_type else []
    return (planned for planned in all_cases(types, only=op) if planned.weight_type == weight_type)


@pytest.fixture(scope="module")
def rig() -> Rig:
    """Accesses of buffers are checked, and threads run backwards; in tests of the promise, forwards."""
    return Rig(is_traced=True, order=1)


@pytest.mark.parametrize(("op", "weight_type", "numbers"), groups())
def test_kernel_matches_the_reference(op: str, weight_type: str, numbers: slice, rig: Rig) -> None:
    made = [planned.made() for planned in list(cases_of(op, weight_type))[numbers]]
    assert [str(outcome) for outcome in outcomes(made, rig) if outcome.status != PASSED] == []


@pytest.mark.parametrize("error", every(3, ERRORS), ids=str)
def test_a_planted_error_is_noticed(error: Error) -> None:
    made = (planned.made() for planned in all_cases([error.weight_type], only=error.op))
    like = (case for case in made if error.like in str(case))
    cases = (replace(one, case=replace(one.case, spare=max(error.spare, one.case.spare))) for one in like)
    with planted(error.file, error.old, error.new):
        assert any(outcome.status == FAILED for case in cases for outcome in outcomes([case]))


def test_a_barrier_in_divergent_flow_is_refused() -> None:
    case = next(cases_of("linear", "q8_0")).made()
    wide = replace(case, case=replace(case.case, spare=20))
    with planted("tile", BARRIER, f"if (lane < 16) {BARRIER}"):
        (outcome,) = outcomes([wide])
    assert outcome.reason.startswith("RigError: linear_tile: a barrier in divergent flow"), outcome


def test_every_file_has_a_planted_error() -> None:
    """Golden blocks notice errors of codecs (`test_codecs.py`)."""
    parts = {name for needed in CODEC_PARTS.values() for name in needed}
    files = {path.stem for path in FOLDER.glob("*.metal")}
    codecs = {name for name in files if name.startswith("codec_")}
    assert files - codecs - parts | {"codec_q8_0"} == {error.file for error in ERRORS}
