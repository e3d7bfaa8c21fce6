"""Every architecture on lavapipe: the logits of its golden model equal the reference's.

Ordinary runs hold one shape of each kind of layer, exhaustive runs the others.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tests.support.exhaustive import exhaustive
from tests.support.hf_models import HfCase, load_cases, nmse, write_hf
from tests.support.model.file_runs import Logits, load_hf, reference_logits, run
from tests.support.parity.adapters import need_driver

from camelid.backends.webgpu.backend import open_backend

pytestmark = pytest.mark.parity

CASES = load_cases()
# Windows, experts, latent attention, a scan beside attention, a scan alone.
FEW = ("gemma3", "qwen3_moe", "deepseek_v3", "falcon_h1", "rwkv7")
MAX_NMSE = 1e-10  # measured: up to about 1e-12
CHUNK = 13  # rows per step: a prompt needs several steps, and windows end inside a step


@pytest.mark.parametrize("dtype", ["bf16", exhaustive("f32")])
@pytest.mark.parametrize("case", [c if c.name in FEW else exhaustive(c) for c in CASES], ids=str)
def test_logits_equal_the_reference(case: HfCase, dtype: str, tmp_path: Path) -> None:
    loaded = load_hf(write_hf(tmp_path / case.name, case, dtype=dtype))
    longest = max(map(len, case.token_ids))
    want = reference_logits(loaded, case.token_ids, context=longest)
    backend = open_backend("Vulkan")
    fused = backend.capabilities().fused
    adapter = need_driver("llvmpipe")
    how = {"context": longest, "fused": fused, "adapter": adapter}
    got: Logits = asyncio.run(run(backend, loaded, case.token_ids, CHUNK, **how))
    error = nmse(got, want)
    print(f"{case.name} {dtype}: NMSE {error:.1e}")
    assert error <= MAX_NMSE
