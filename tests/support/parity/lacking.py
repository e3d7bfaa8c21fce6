"""Ops without kernels on webgpu, cuda and mlx, and the golden models that these backends refuse for them."""

from __future__ import annotations

from tests.support.hf_models import HfCase, load_cases

RWKV_OPS = frozenset({"bonus_rwkv7", "scan_rwkv7", "token_shift"})
RWKV = ("rwkv7",)


def cases_of_gpus() -> list[HfCase]:
    """The golden models that GPU backends run."""
    return [case for case in load_cases() if case.model_type not in RWKV]


def cases_of_cpu() -> list[HfCase]:
    """The golden models that GPU backends refuse."""
    return [case for case in load_cases() if case.model_type in RWKV]
