"""Comparison of two backends on an op."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np

from camelid.backends.base import Candidates, OpenSpec
from camelid.backends.common.op_runner import OpCase, OpResult, run_case
from camelid.backends.reference.backend import ReferenceBackend

TOLERANCE = 1e-10  # NMSE of float32 paths


def nmse(got: Any, want: Any) -> float:
    """Sum of squared errors over the sum of squares; infinite if only one side is finite."""
    got, want = np.asarray(got, np.float64), np.asarray(want, np.float64)
    if not np.array_equal(np.isfinite(got), np.isfinite(want)):
        return np.inf
    fine = np.isfinite(want)
    return float(((got[fine] - want[fine]) ** 2).sum() / max((want[fine] ** 2).sum(), 1e-30))


def errors(got: OpResult, want: OpResult) -> list[float]:
    """NMSE of each written view, and of state that an op with views computes; all else must be equal."""
    found = [nmse(got.views[role], want.views[role]) for role in want.views]
    equal = [np.array_equal(got.state[name], want.state[name], equal_nan=True) for name in want.state]
    computed = [nmse(got.state[name], want.state[name]) if want.views else np.inf for name in want.state]
    found += [0.0 if is_equal else error for is_equal, error in zip(equal, computed, strict=True)]
    for a, b in zip(got.rows, want.rows, strict=True):
        if b.status == "nan":  # such a row is refused, so its numbers are undefined
            found.append(0.0 if a.status == "nan" else np.inf)
            continue
        same = (a.token_id, a.status) == (b.token_id, b.status)
        found.append(nmse([a.logit, a.log_sum_exp], [b.logit, b.log_sum_exp]) if same else np.inf)
        if b.logits is not None:
            found.append(nmse(a.logits, b.logits))
        if b.candidates is not None:
            found += candidate_errors(a.candidates, b.candidates)
    if all(row.status != "nan" for row in want.rows):
        found.append(0.0 if list(map(list, got.rings)) == list(map(list, want.rings)) else np.inf)
    return found


def candidate_errors(got: Candidates | None, want: Candidates) -> list[float]:
    """Compares candidates: ids must be equal; logits are copies, not sums."""
    if got is None or list(got.ids) != list(want.ids) or list(got.logits) != list(want.logits):
        return [np.inf]
    return [nmse([got.mean, got.variance], [want.mean, want.variance])]


def reference_result(case: OpCase) -> OpResult:
    return asyncio.run(run_case(ReferenceBackend(), case))


async def run_on(backend: Any, spec: OpenSpec, cases: list[OpCase]) -> list[OpResult]:
    """Runs all cases on one opened device."""
    await backend.open(spec)
    try:
        return [await run_case(backend, case) for case in cases]
    finally:
        await backend.close()
