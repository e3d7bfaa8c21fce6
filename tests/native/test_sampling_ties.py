"""Limits that a sum of probabilities equals exactly."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest
from tests.support.native.kernels import VARIANTS
from tests.support.parity.cases_sampling import case, limited
from tests.support.parity.compare import reference_result, run_on

from camelid.backends.base import OpenSpec
from camelid_native.cpu.backend import open_backend


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_sum_equal_to_top_p_suffices(variant: str) -> None:
    """Two of four equal ids sum to one half without rounding."""
    halves = case(
        np.zeros((60, 4), np.float32), *(limited(seed=seed, top_k=4, top_p=0.5) for seed in range(60))
    )
    (got,) = asyncio.run(run_on(open_backend(), OpenSpec(adapter=variant, threads=1), [halves]))
    assert {row.token_id for row in got.rows} == {0, 1}
    assert [row.token_id for row in got.rows] == [row.token_id for row in reference_result(halves).rows]
