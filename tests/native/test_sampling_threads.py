"""One output sampled by several threads, each with some blocks of its row: the token of one thread."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest
from tests.support.native.kernels import VARIANTS
from tests.support.parity.cases_sampling import case
from tests.support.parity.compare import reference_result, run_on

from camelid.backends.base import OpenSpec
from camelid.backends.common.op_runner import OpCase
from camelid.plan.step import StepSampling
from camelid_native.cpu.backend import open_backend

VOCAB = 40_000  # 20 blocks
N_CASES = 24


def cases() -> list[OpCase]:
    """Greedy and random draws of all ids in turns. Only the last thread has the output, and may reach a
    block's results before another; the largest logit and the sampled token are anywhere.
    """
    rng = np.random.default_rng(8)
    ways = (StepSampling(), *(StepSampling(temperature=1.0, seed=seed) for seed in range(1, N_CASES)))
    rows = rng.normal(size=(N_CASES, 1, VOCAB)).astype(np.float32) - np.float32(5)
    return [case(row, ways[i if i % 2 else 0]) for i, row in enumerate(rows)]


@pytest.fixture(scope="module")
def wanted() -> list[int]:
    tokens = [reference_result(each).rows[0].token_id for each in cases()]
    assert len({token * 4 // VOCAB for token in tokens}) == 4
    return tokens


@pytest.mark.parametrize("threads", [2, 3, 4])
@pytest.mark.parametrize("variant", VARIANTS[-1:])
def test_threads_draw_the_references_token(variant: str, threads: int, wanted: list[int]) -> None:
    got = asyncio.run(run_on(open_backend(), OpenSpec(adapter=variant, threads=threads), cases()))
    assert [result.rows[0].token_id for result in got] == wanted
