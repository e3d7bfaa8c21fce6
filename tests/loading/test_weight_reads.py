"""Concurrent streams share one read of the weights per step: counted, not timed."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest
from tests.perf.streams import reference_reads, tokens_per_second, webgpu_reads
from tests.support.gguf_files import write_tiny_llama

import camelid
from camelid.backends.null.backend import NullBackend
from camelid.engine.programs import DECODE, Limits
from camelid.loading.deployment import Deployment
from camelid.loading.model_file import open_model


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("model") / "tiny.gguf"
    write_tiny_llama(place, seed=3)
    return place


def test_reference_reads_its_weights_once_a_step(path: Path) -> None:
    async def reads(n_streams: int) -> float:
        async with await camelid.aload(path, backend="reference", context=64, parallel=n_streams) as llm:
            return await reference_reads(llm, lambda: tokens_per_second(llm, n_streams, 8))

    one, eight = asyncio.run(reads(1)), asyncio.run(reads(8))
    assert 0.9 < one < 1.2, "a step did not read each matrix once"
    assert eight == pytest.approx(one, rel=0.05)


def test_a_decode_step_on_webgpu_reads_each_matrix_once(path: Path) -> None:
    model = asyncio.run(open_model(str(path))).model
    can = replace(NullBackend().capabilities(), fused=frozenset({"add_norm", "linear_glu"}))
    plan = Deployment(model, Limits(parallel=8), can).plan(DECODE)
    assert [webgpu_reads(plan, n_rows) for n_rows in (1, 8)] == [1.0, 1.0]
