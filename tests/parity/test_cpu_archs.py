"""Every architecture on the CPU: the logits of its golden model are the reference's.

The models are in float32 and bfloat16, so that activations are not rounded and the bound is that of float32.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tests.hf_models import HfCase, load_cases, nmse, write_hf
from tests.model.file_runs import Logits, load_hf, reference_logits, run

from camelid_native.cpu import open_backend
from camelid_native.cpu_api import Library

pytestmark = pytest.mark.parity

CASES = load_cases()
MAX_NMSE = 1e-10
CHUNK = 13  # rows a step: prompts take several, windows pass their edge inside one
VARIANTS = [name for name, can in Library().variants.items() if can]


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_logits_equal_the_reference(case: HfCase, variant: str, tmp_path: Path) -> None:
    loaded = load_hf(write_hf(tmp_path / case.name, case, dtype="bf16"))
    longest = max(map(len, case.token_ids))
    want = reference_logits(loaded, case.token_ids, context=longest)
    how = {"context": longest, "fused": open_backend().capabilities().fused, "adapter": variant}
    got: Logits = asyncio.run(run(open_backend(), loaded, case.token_ids, CHUNK, **how))
    error = nmse(got, want)
    print(f"{case.name} {variant}: NMSE {error:.1e}")
    assert error <= MAX_NMSE


@pytest.mark.parametrize("case", CASES, ids=str)
def test_chunks_do_not_show(case: HfCase, tmp_path: Path) -> None:
    """Promise B: the very bits, whatever the chunk."""
    loaded = load_hf(write_hf(tmp_path / case.name, case, dtype="f32"))
    longest = max(map(len, case.token_ids))
    how = {"context": longest, "fused": open_backend().capabilities().fused}
    whole, *parts = (
        asyncio.run(run(open_backend(), loaded, case.token_ids, chunk, **how)) for chunk in (64, CHUNK, 1)
    )
    for part in parts:
        assert [list(map(bytes, rows)) for rows in part] == [list(map(bytes, rows)) for rows in whole]
