"""The gate that ships, in every variant of the kernels that this machine runs: all its cases pass."""

from __future__ import annotations

import asyncio

import pytest
from tests.native.kernels import VARIANTS

from camelid.backends.base import OpenSpec
from camelid.backends.gate.cases import all_cases
from camelid.backends.gate.gate import PASSED, Outcome, judge
from camelid.plan.ops import OPS
from camelid_native.cpu import open_backend

pytestmark = pytest.mark.parity


async def gate(variant: str, op: str) -> list[Outcome]:
    backend = open_backend()
    await backend.open(OpenSpec(adapter=variant, threads=2))
    cases = all_cases(backend.capabilities().weight_types, op)
    outcomes = [await judge(backend, planned.made()) for planned in cases]
    await backend.close()
    return outcomes


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("op", OPS)
def test_every_case_passes(op: str, variant: str) -> None:
    outcomes = asyncio.run(gate(variant, op))
    assert outcomes
    assert [str(outcome) for outcome in outcomes if outcome.status != PASSED] == []
