"""Numbers of op cases, for `parametrize`: a part in every run, the others in exhaustive ones."""

from __future__ import annotations

from typing import Any

import pytest
from tests.parity.cases import OP_CASES, case_id, kind_of


def numbers(every: int = len(OP_CASES)) -> list[Any]:
    """One case of each kind, and one in `every`, are in each run."""
    few = {*{kind_of(case): i for i, case in enumerate(OP_CASES)}.values(), *range(0, len(OP_CASES), every)}
    return [
        pytest.param(i, id=case_id(case), marks=[] if i in few else [pytest.mark.exhaustive])
        for i, case in enumerate(OP_CASES)
    ]


def asked(request: Any) -> list[int]:
    """The `i` of the tests that this run asks for, of the fixture's file and parameter: one device computes
    them together."""
    items = [item for item in request.session.items if item.path == request.path]
    params = [item.callspec.params for item in items if hasattr(item, "callspec")]
    own = getattr(request, "param", None)
    return sorted(each["i"] for each in params if each.get(request.fixturename) == own)
