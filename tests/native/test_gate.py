"""The gate: every op on every variant of this machine; in ordinary runs on one variant, in turn."""

from __future__ import annotations

import asyncio
from functools import cache, partial

import pytest
from tests.support.exhaustive import in_turn
from tests.support.native.kernels import VARIANTS

from camelid.backends.base import OpenSpec
from camelid.backends.common.op_runner import OpCase, OpResult
from camelid.backends.proof.cases import all_cases
from camelid.backends.proof.gate import PASSED, Outcome, judge, on_reference
from camelid.backends.proof.inputs import GateCase
from camelid.plan.op_rows_fused import FUSED
from camelid.plan.ops import OPS
from camelid.plan.parallel import SUM
from camelid_native.cpu.backend import open_backend

pytestmark = pytest.mark.parity


Key = tuple[frozenset[str], str, int]  # types of weights, an op, the number of its case


@cache
def cases(weight_types: frozenset[str], op: str) -> list[GateCase]:
    return [planned.made() for planned in all_cases(weight_types, op)]


@pytest.fixture(scope="module")
def known() -> dict[Key, OpResult]:
    """The reference's results, equal for each variant."""
    return {}


async def shared(known: dict[Key, OpResult], key: Key, case: OpCase) -> OpResult:
    if key not in known:
        known[key] = await on_reference(case)
    return known[key]


async def gate(variant: str, op: str, known: dict[Key, OpResult]) -> list[Outcome]:
    backend = open_backend()
    await backend.open(OpenSpec(adapter=variant, threads=2))
    types = backend.capabilities().weight_types
    own = enumerate(cases(types, op))
    outcomes = [await judge(backend, case, partial(shared, known, (types, op, i))) for i, case in own]
    await backend.close()
    return outcomes


@pytest.mark.parametrize(("op", "variant"), in_turn([op for op in OPS if op not in {*FUSED, SUM}], VARIANTS))
def test_every_case_passes(op: str, variant: str, known: dict[Key, OpResult]) -> None:
    outcomes = asyncio.run(gate(variant, op, known))
    assert outcomes
    assert [str(outcome) for outcome in outcomes if outcome.status != PASSED] == []
