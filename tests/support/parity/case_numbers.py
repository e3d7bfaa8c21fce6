"""Numbers of op cases for `parametrize`: a fixed sample in ordinary runs, the others in exhaustive runs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
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
    items: list[Any] = [item for item in request.session.items if item.path == request.path]
    params = [item.callspec.params for item in items if hasattr(item, "callspec")]
    own = getattr(request, "param", None)
    return sorted(each["i"] for each in params if "i" in each and each.get(request.fixturename) == own)
