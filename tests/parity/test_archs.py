"""Every architecture on lavapipe: the logits of its golden model equal the reference's.

Ordinary runs hold each third shape, exhaustive runs the others. An architecture with ops that
webgpu lacks is refused by the name of the first such op.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tests.support.exhaustive import every, exhaustive
from tests.support.hf_models import HfCase, load_cases, nmse, write_hf
from tests.support.model.file_runs import Logits, encode_plan, load_hf, reference_logits, run
from tests.support.model.runs import make_plan
from tests.support.parity.adapters import need_driver

from camelid.backends.base import check_plan
from camelid.backends.webgpu.backend import open_backend
from camelid.errors import BackendError

pytestmark = pytest.mark.parity

# By model type: ops without a kernel.
LACKED = {
    "gemma3n_text": "linear does not support x = routed",
}


def lacked(case: HfCase) -> str:
    """Ops of a case without a kernel, "" if it has all."""
    return LACKED.get(case.model_type, "")


CASES = [case for case in load_cases() if not lacked(case)]
MAX_NMSE = 1e-10  # measured: up to about 1e-12
CHUNK = 13  # rows per step: a prompt needs several steps, and windows end inside a step


@pytest.mark.parametrize("dtype", ["bf16", exhaustive("f32")])
@pytest.mark.parametrize("case", every(3, CASES), ids=str)
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


@pytest.mark.parametrize("case", [case for case in load_cases() if lacked(case)], ids=str)
def test_ops_without_a_kernel_are_named(case: HfCase, tmp_path: Path) -> None:
    model = load_hf(write_hf(tmp_path, case)).model
    plan = encode_plan(model, 1) if model.spec.embeds else make_plan(model, 1, context=16)
    with pytest.raises(BackendError, match=f"(no kernel for the op|kernel of|load op) {lacked(case)}"):
        check_plan(plan, open_backend("Vulkan").capabilities())
