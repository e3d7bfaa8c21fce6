"""Every op on MLX against the reference: the parity cases, and all cases of the gate."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.support.parity.case_numbers import numbers, requested
from tests.support.parity.cases import OP_CASES, sample_of_kernels
from tests.support.parity.compare import TOLERANCE, errors, reference_result, run_on

from camelid.backends.base import OpenSpec
from camelid.backends.common.codecs import CODECS
from camelid.backends.common.op_runner import OpCase, OpResult
from camelid.backends.proof.cases import all_cases
from camelid.backends.proof.gate import FAILED, PASSED, Outcome, judge
from camelid.plan.op_rows_fused import FUSED
from camelid.plan.ops import OPS
from camelid_native.mlx.backend import open_backend

pytestmark = pytest.mark.parity


def has_kernel(case: OpCase) -> bool:
    return case.op not in FUSED and set(case.dtypes.values()) <= {"f32"}


@pytest.fixture(scope="module")
def results(request: Any) -> dict[int, OpResult]:
    """The result of each case in this run."""
    chosen = requested(request)
    found = asyncio.run(run_on(open_backend(), OpenSpec(), [OP_CASES[i] for i in chosen]))
    return dict(zip(chosen, found, strict=True))


def params() -> list[Any]:
    found: list[Any] = numbers(sample_of_kernels(OP_CASES))
    return [param for param in found if has_kernel(OP_CASES[param.values[0]])]


@pytest.mark.parametrize("i", params())
def test_op_matches_reference(i: int, results: dict[int, OpResult]) -> None:
    assert max(errors(results[i], reference_result(OP_CASES[i]))) <= TOLERANCE


def test_every_op_but_fused_ones_has_a_kernel() -> None:
    assert open_backend().capabilities().ops == OPS.keys() - FUSED


def test_no_case_of_the_gate_fails() -> None:
    async def outcomes() -> list[Outcome]:
        backend = open_backend()
        await backend.open(OpenSpec())
        found = [await judge(backend, planned.made()) for planned in all_cases(tuple(CODECS))]
        await backend.close()
        return found

    found = asyncio.run(outcomes())
    assert [str(outcome) for outcome in found if outcome.status == FAILED] == []
    passed = {outcome.case.op for outcome in found if outcome.status == PASSED}
    assert {*OPS} - FUSED == passed
