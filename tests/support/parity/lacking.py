"""Ops without kernels on webgpu, cuda and mlx, and the golden models that these backends refuse for them."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.hf_models import HfCase, load_cases, write_hf
from tests.support.model.file_runs import load_hf
from tests.support.model.runs import make_plan

from camelid.backends.base import Backend, check_plan
from camelid.errors import BackendError

RWKV_OPS = frozenset({"bonus_rwkv7", "scan_rwkv6", "scan_rwkv7", "token_shift"})
RWKV = ("rwkv6", "rwkv6qwen2", "rwkv7", "rwkv_hybrid")


def cases_of_gpus() -> list[HfCase]:
    """The golden models that GPU backends run."""
    return [case for case in load_cases() if case.model_type not in RWKV]


def cases_of_cpu() -> list[HfCase]:
    """The golden models that GPU backends refuse."""
    return [case for case in load_cases() if case.model_type in RWKV]


def check_refused(backend: Backend, case: HfCase, folder: Path) -> None:
    """Asserts that the error of a backend without kernels names the ops."""
    plan = make_plan(load_hf(write_hf(folder, case)).model, 8, 1, context=64)
    ops = sorted({op.name for op in plan.ops} & RWKV_OPS)
    with pytest.raises(BackendError, match=f"no kernel for the op {', '.join(ops)}"):
        check_plan(plan, backend.capabilities())
