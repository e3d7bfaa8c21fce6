"""Draws on MLX are the reference's, token for token: seeds, penalties, top-k, top-p and min-p."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.mlx.decoding import decoded
from tests.support.exhaustive import share_of

from camelid.backends.base import OpenSpec
from camelid.backends.common.op_runner import OpCase, run_case
from camelid.backends.proof.inputs import normal
from camelid.backends.reference.backend import ReferenceBackend
from camelid.plan.step import StepSampling
from camelid_native.mlx.backend import open_backend

pytestmark = pytest.mark.parity

WAYS: dict[str, dict[str, Any]] = {
    "drawn": {"temperature": 6.0},
    "top-k and top-p": {"temperature": 3.0, "top_k": 40, "top_p": 0.9},
    "min-p": {"temperature": 2.0, "min_p": 0.02},
    "penalties": {"temperature": 1.5, "repeat_penalty": 1.5, "frequency_penalty": 0.5, "penalty_last_n": 20},
}
SEEDS = range(64)


@pytest.mark.parametrize("way", WAYS)
def test_draws_of_many_seeds_equal_the_reference(way: str) -> None:
    """One step whose outputs have seeds of their own."""
    ways = [StepSampling(**{**WAYS[way], "seed": seed * 0x9E3779B97F4A7C15}) for seed in SEEDS]
    case = OpCase(
        op="sample", views={"logits": normal("seeds", len(ways), 500, scale=3.0)}, sampling=ways,
        history=tuple(i * i % 37 for i in range(90)), first_output=90,
    )  # fmt: skip

    async def both() -> list[list[int]]:
        backend = open_backend()
        await backend.open(OpenSpec())
        results = [await run_case(one, case) for one in (backend, ReferenceBackend())]
        await backend.close()
        return [[row.token_id for row in result.rows] for result in results]

    got, want = asyncio.run(both())
    assert got == want
    assert len(set(want)) > len(want) // 2


@pytest.mark.parametrize("way", share_of(WAYS, 2))
@pytest.mark.parametrize("seed", share_of([3, 4, 5]))
def test_cria_s_tokens_that_run_ahead_equal_the_reference(way: str, seed: int) -> None:
    """Each id passes from draw to embedding in the ring, two steps in flight."""
    how = {**WAYS[way], "seed": seed}
    assert decoded(open_backend(), 48, **how) == decoded(ReferenceBackend(), 48, **how)
