"""Every op of the cuda backend on the rig against the reference, with x rounded as the backend rounds it."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from tests.cuda.rig import open_rig
from tests.support.exhaustive import share_of
from tests.support.parity.case_numbers import numbers, requested
from tests.support.parity.case_tools import weight
from tests.support.parity.cases import OP_CASES, qkv_cases, sample_of_kernels
from tests.support.parity.compare import TOLERANCE, errors, reference_result, run_on

from camelid.backends.base import OpenSpec
from camelid.backends.common.op_runner import OpCase, OpResult
from camelid.backends.proof.compare import nmse
from camelid.backends.proof.gate import inputs_of
from camelid_native.cuda.kernels import KERNELS
from camelid_native.cuda.types import EXACT_TYPES

pytestmark = pytest.mark.parity

# Order of threads after a barrier, and lanes of a wave; in ordinary runs the first.
WAYS = {"ascending": ("0", "32"), "random, waves of 64": ("7", "64"), "descending": ("1", "32")}


def has_kernel(param: Any) -> bool:
    """True for an op with a kernel whose weights all multiply rounded x, or all x as it is."""
    case = OP_CASES[param.values[0]]
    both = {case.weights[role].type in EXACT_TYPES for role in ("weight", "v_weight") if role in case.weights}
    return case.op in KERNELS and len(both) < 2


@pytest.fixture(scope="module", params=share_of(WAYS))
def results(request: Any) -> dict[int, OpResult]:
    """The result of each case in this run."""
    chosen, backend = requested(request), open_rig()
    order, wave = WAYS[request.param]
    cases = [inputs_of(OP_CASES[i], backend.capabilities())[0] for i in chosen]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("EMU_ORDER", order)
        patch.setenv("EMU_WAVE", wave)
        results = asyncio.run(run_on(backend, OpenSpec(), cases))
    return dict(zip(chosen, results, strict=True))


def mixed_cases() -> list[OpCase]:
    """Queries and keys of one kind, values of the other: rounded x for one map, x as it is for the other."""
    found = (case for case in qkv_cases() if "v_weight" in case.weights and "q_gain" in case.weights)
    case = next(case for case in found if case.weights["v_weight"].type in EXACT_TYPES)
    swapped = {"weight": weight("f16", 97, 192, 64), "v_weight": weight("q8_0", 99, 32, 64)}
    return [case, replace(case, weights={**case.weights, **swapped})]


MIXED = mixed_cases()


@pytest.mark.parametrize("case", MIXED, ids=["values as floats", "values rounded"])
def test_each_half_of_a_mixed_qkv_matches_reference(case: OpCase) -> None:
    both = [replace(case, views=one.views) for one in inputs_of(MIXED[0], open_rig().capabilities())]
    (got,) = asyncio.run(run_on(open_rig(), OpenSpec(), both[:1]))
    exact, coarse = map(reference_result, both)
    is_float = case.weights["v_weight"].type in EXACT_TYPES
    keys, values = (coarse, exact) if is_float else (exact, coarse)
    n = case.weights["weight"].shape[0]  # columns of queries and keys
    assert nmse(got.views["y"][:, :n], keys.views["y"][:, :n]) <= TOLERANCE
    assert nmse(got.views["y"][:, n:], values.views["y"][:, n:]) <= TOLERANCE
    assert nmse(got.state["k"], keys.state["k"]) <= TOLERANCE >= nmse(got.state["v"], values.state["v"])
    assert nmse(exact.views["y"], coarse.views["y"]) > TOLERANCE


@pytest.mark.parametrize("i", [param for param in numbers(sample_of_kernels(OP_CASES)) if has_kernel(param)])
def test_op_matches_reference(i: int, results: dict[int, OpResult]) -> None:
    _, expected = inputs_of(OP_CASES[i], open_rig().capabilities())
    assert max(errors(results[i], reference_result(expected))) <= TOLERANCE
