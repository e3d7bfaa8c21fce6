"""Adapters of mlx on MLX's CPU device: whole models with terms in several slots, state added to a backend."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tests.support.exhaustive import every
from tests.support.gguf_files import write_tiny_llama
from tests.support.hf_models import load_case, write_hf
from tests.support.model.file_runs import load_hf
from tests.support.parity.adapter_checks import check_adapters, check_added_groups, check_company, quantized
from tests.support.parity.compare import run_on

from camelid.backends.base import OpenSpec
from camelid_native.mlx.backend import open_backend

pytestmark = pytest.mark.parity

BOUND = 1e-10  # NMSE of logits
GOLDEN = ["llama31", "qwen3", "gemma3", "qwen3_moe", "gpt_oss"]


@pytest.mark.parametrize("steps", ["many", "few"])
@pytest.mark.parametrize("name", every(3, GOLDEN))
def test_golden_models_with_adapters_equal_the_reference(name: str, steps: str, tmp_path: Path) -> None:
    loaded = load_hf(write_hf(tmp_path / name, load_case(name), dtype="f16"))
    check_adapters(open_backend(), loaded, steps=steps, bound=BOUND)


def test_a_mix_of_types_with_adapters_equals_the_reference(tmp_path: Path) -> None:
    write_tiny_llama(tmp_path / "whole.gguf", seed=5, context=64, type="f16")
    check_adapters(open_backend(), quantized(tmp_path / "whole.gguf", tmp_path, "q4_k_m"), bound=BOUND)


@pytest.mark.exhaustive
@pytest.mark.slow
@pytest.mark.parametrize("name", GOLDEN)
def test_compiled_graphs_keep_their_bits(name: str, compiled: None, tmp_path: Path) -> None:
    check_adapters(open_backend(), load_hf(write_hf(tmp_path / name, load_case(name), dtype="f16")))


def test_company_changes_no_bit_of_a_row() -> None:
    check_company(lambda cases: asyncio.run(run_on(open_backend(), OpenSpec(), cases)))


def test_added_groups_keep_programs_and_bits(tmp_path: Path) -> None:
    loaded = load_hf(write_hf(tmp_path / "llama", load_case("llama31"), dtype="f16"))
    check_added_groups(open_backend(), loaded)
