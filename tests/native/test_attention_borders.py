"""Threads that share one row's keys, exactly at the border of two chunks."""

from __future__ import annotations

import pytest
from tests.support.exhaustive import share_of
from tests.support.native.attention_oracle import Shape, run
from tests.support.native.kernels import VARIANTS

CHUNK_KEYS = 64
MOST_CHUNKS = 6


@pytest.mark.parametrize("variant", share_of(dict.fromkeys((VARIANTS[-1], *VARIANTS))))
@pytest.mark.parametrize("n_kv_heads", [1, 2])
def test_a_share_may_end_with_a_chunk(n_kv_heads: int, variant: str) -> None:
    """With one kv head and one chunk per thread; the first thread merges the others' results."""
    shape = Shape(heads=(2, n_kv_heads), dims=(32, 32))
    for n in range(CHUNK_KEYS, MOST_CHUNKS * CHUNK_KEYS + 1, CHUNK_KEYS):
        case = shape.case([n - 1], n)
        alone = run(case, variant).views["y"].tobytes()
        assert [run(case, variant, threads).views["y"].tobytes() for threads in (2, 3, 4)] == [alone] * 3
