"""Numbers of op cases for `parametrize`: a fixed sample in ordinary runs, the others in exhaustive runs."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from tests.support.exhaustive import parameters
from tests.support.parity.cases import OP_CASES, case_id

from camelid.backends.common.op_runner import OpCase


def numbers(sample: Iterable[OpCase]) -> list[object]:
    """The number of each op case; cases outside the sample are exhaustive."""
    few = set(map(id, sample))
    return [
        pytest.param(i, id=case_id(case), marks=[] if id(case) in few else [pytest.mark.exhaustive])
        for i, case in enumerate(OP_CASES)
    ]


def requested(request: pytest.FixtureRequest) -> list[int]:
    """The `i` of this run's tests with the fixture's file and parameter: one device computes all of them."""
    own, params = getattr(request, "param", None), parameters(request)
    return sorted(each["i"] for each in params if "i" in each and each.get(request.fixturename) == own)
