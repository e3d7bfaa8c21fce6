"""Numbers of op cases, for `parametrize`: a part in every run, the others in exhaustive ones."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from tests.support.parity.cases import OP_CASES, case_id, kind_of, one_of_each_kind

from camelid.backends.common.op_runner import OpCase


def numbers(share: float = 0.0, kind: Callable[[OpCase], object] = kind_of) -> list[object]:
    """One case of each kind, and a share of all, are in each run. The share is drawn by lot: every type has
    the same row of shapes, and each n-th case would leave out the same shapes of all of them."""
    drawn = Random(1).sample(OP_CASES, int(share * len(OP_CASES)))
    few = set(map(id, [*one_of_each_kind(OP_CASES, kind), *drawn]))
    return [
        pytest.param(i, id=case_id(case), marks=[] if id(case) in few else [pytest.mark.exhaustive])
        for i, case in enumerate(OP_CASES)
    ]


def asked(request: pytest.FixtureRequest) -> list[int]:
    """The `i` of the tests that this run asks for, of the fixture's file and parameter: one device computes
    them together."""
    items: list[Any] = [item for item in request.session.items if item.path == request.path]
    params = [item.callspec.params for item in items if hasattr(item, "callspec")]
    own = getattr(request, "param", None)
    return sorted(each["i"] for each in params if "i" in each and each.get(request.fixturename) == own)
