"""Every architecture's golden model on the CPU kernels: logits of the reference for any chunk size.

Float32 and float16 models share the bound of float32: their activations are not rounded.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

from tests.support.hf_models import HfCase, nmse, write_hf
from tests.support.model.file_runs import Logits, load_hf, reference_logits, run

from camelid.backends.base import Backend

MAX_NMSE = {"f16": 1e-10, "bf16": 1e-3}  # by type: bf16 weights round activations to 8 bits
CHUNK = 13  # rows per step: a prompt needs several steps, and windows end inside a step
FUSED = frozenset({"add_norm", "linear_glu"})
Make = Callable[[], Backend]


def check_logits(
    make: Make, case: HfCase, variant: str, folder: Path, dtype: str = "f16", fused: frozenset[str] = FUSED
) -> None:
    """Asserts logits equal to the reference's within rounding."""
    loaded = load_hf(write_hf(folder / case.name, case, dtype=dtype))
    longest = max(map(len, case.token_ids))
    want = reference_logits(loaded, case.token_ids, context=longest)
    how = {"context": longest, "fused": fused, "adapter": variant}
    got: Logits = asyncio.run(run(make(), loaded, case.token_ids, CHUNK, **how))
    error = nmse(got, want)
    print(f"{case.name} {variant} {dtype}: NMSE {error:.1e}")
    assert error <= MAX_NMSE[dtype]


def check_chunks(make: Make, case: HfCase, folder: Path) -> None:
    """Asserts promise B: equal bits for any chunk size."""
    loaded = load_hf(write_hf(folder / case.name, case, dtype="f32"))
    how = {"context": max(map(len, case.token_ids)), "fused": FUSED}
    chunks = (64, CHUNK, 1)
    whole, *parts = (asyncio.run(run(make(), loaded, case.token_ids, chunk, **how)) for chunk in chunks)
    for part in parts:
        assert [list(map(bytes, rows)) for rows in part] == [list(map(bytes, rows)) for rows in whole]
