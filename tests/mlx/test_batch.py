"""Promise A op by op, on MLX's CPU device: a row has the same bits alone as among others, in programs of any
capacity.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from tests.support.parity.case_tools import array, empty, weight
from tests.support.parity.cases import OP_CASES
from tests.support.parity.cases_state import attention_case
from tests.support.parity.compare import run_on

from camelid.backends.base import OpenSpec
from camelid.backends.common.op_runner import OpCase
from camelid.plan.op_rows_fused import FUSED
from camelid.plan.ops import OPS
from camelid_native.mlx.backend import open_backend

pytestmark = pytest.mark.parity

ROWS, PER_OP = 64, 3
POSITIONS = [299, 7, 130, 298]


def product(n_in: int, n_out: int) -> OpCase:
    """A product of many rows."""
    views = {"y": empty(ROWS, n_out), "x": array(70, ROWS, n_in)}
    return OpCase(op="linear", views=views, weights={"weight": weight("q8_0", 71, n_out, n_in)})


def wide_cases() -> Iterator[OpCase]:
    """Products of short and long rows, and cases of each row-wise op with several rows."""
    yield from (product(n_in, n_out) for n_in, n_out in ((64, 96), (288, 38), (2048, 33)))
    for name in sorted(OPS.keys() - FUSED):
        own = (case for case in OP_CASES if case.op == name and not case.of_outputs and not case.dtypes)
        many = [case for case in own if OPS[name].row_wise and min(map(len, case.views.values())) > 1]
        yield from many[:PER_OP]


def alone(case: OpCase, row: int, spare: int) -> OpCase:
    """One row of a case, in a program with capacity for `spare` more."""
    views = {role: rows[row : row + 1] for role, rows in case.views.items()}
    positions = case.positions[row : row + 1] if case.positions else ()
    return replace(case, views=views, positions=positions, spare=spare)


def attention() -> OpCase:
    return attention_case(POSITIONS, 4, 2, 64, 32, {"softcap": 2.0}, {}, 0, 300, kv_type="q8_0")


@pytest.mark.parametrize("case", [*wide_cases(), attention()], ids=lambda case: case.op)
def test_a_batch_changes_no_bit_of_a_row(case: OpCase) -> None:
    n = min(map(len, case.views.values()))
    ways = [(row, spare) for row in {0, n // 2, n - 1} for spare in (0, 1, n - 1)]
    cases = [case, *(alone(case, *way) for way in ways)]
    together, *each = asyncio.run(run_on(open_backend(), OpenSpec(), cases))
    for (row, _), one in zip(ways, each, strict=True):
        for role, rows in one.views.items():
            assert np.array_equal(rows[0], together.views[role][row], equal_nan=True)
