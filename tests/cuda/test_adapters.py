"""Adapters of cuda: whole models with terms in several slots, and bits of rows without an adapter."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.cuda.rig import open_rig, open_rigs
from tests.support.exhaustive import exhaustive, share_of
from tests.support.gguf_files import write_tiny_llama
from tests.support.hf_models import load_case, write_hf
from tests.support.model.file_runs import load_hf
from tests.support.model.parallel_runs import parallel
from tests.support.parity.adapter_checks import (
    MANY,
    PROMPTS,
    check_adapters,
    check_added_groups,
    check_company,
    quantized,
)
from tests.support.parity.case_tools import array, empty, vector, weight
from tests.support.parity.cases_adapters import adapter_cases
from tests.support.parity.compare import TOLERANCE, errors, reference_result, run_on

from camelid.backends.base import OpenSpec
from camelid.backends.common.op_runner import OpCase
from camelid.plan.op_rows_fused import QUAD, deferred_cols

pytestmark = [pytest.mark.parity, pytest.mark.slow]

FUSED = open_rig().capabilities().fused
BOUND = 1e-10  # NMSE of logits of f16 weights, whose products round no input
GOLDEN = [
    "qwen3",
    exhaustive("llama31"),
    exhaustive("gemma3"),
    exhaustive("qwen3_moe"),
    exhaustive("gpt_oss"),
]
STEPS = ["many", exhaustive("few")]


@pytest.mark.parametrize("wave", ["32", exhaustive("64")])
@pytest.mark.parametrize("steps", STEPS)
@pytest.mark.parametrize("name", GOLDEN)
def test_golden_models_with_adapters_equal_the_reference(
    name: str, steps: str, wave: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EMU_WAVE", wave)
    loaded = load_hf(write_hf(tmp_path / name, load_case(name), dtype="f16"))
    check_adapters(open_rig(), loaded, FUSED, steps=steps, bound=BOUND)


@pytest.mark.parametrize("name", share_of(["qwen3_moe", "llama31", "gpt_oss"]))
def test_devices_of_a_tensor_parallel_model_have_shares_of_the_slots(name: str, tmp_path: Path) -> None:
    loaded = load_hf(write_hf(tmp_path / name, load_case(name), dtype="f16"))
    check_adapters(parallel(open_rigs, loaded.model, 2, max(map(len, PROMPTS))), loaded, bound=BOUND)


@pytest.mark.exhaustive  # ordinary runs have terms beside one type, and `test_qkv_mixed.py` without terms
@pytest.mark.parametrize("steps", ["many", "few"])
def test_a_mix_of_types_keeps_its_bits(steps: str, tmp_path: Path) -> None:
    write_tiny_llama(tmp_path / "whole.gguf", seed=5, hidden=256, ffn=512, context=64, type="f16")
    loaded = quantized(tmp_path / "whole.gguf", tmp_path, "q4_k_m")
    assert {weight.type for weight in loaded.model.weights.values()} == {"f32", "q4_k", "q6_k"}
    check_adapters(open_rig(), loaded, FUSED, steps=steps)


@pytest.mark.parametrize("steps", STEPS)
@pytest.mark.parametrize("name", ["qwen3_moe", exhaustive("qwen3"), exhaustive("gemma3")])
def test_rounded_activations_keep_their_bits(name: str, steps: str, tmp_path: Path) -> None:
    loaded = quantized(write_hf(tmp_path / name, load_case(name)), tmp_path, "q8_0")
    check_adapters(open_rig(), loaded, FUSED, steps=steps)


def test_added_groups_keep_programs_and_bits(tmp_path: Path) -> None:
    loaded = load_hf(write_hf(tmp_path / "llama", load_case("llama31"), dtype="f16"))
    check_added_groups(open_rig(), loaded)


@pytest.mark.parametrize("wave", ["32", "64"])
def test_company_changes_no_bit_of_a_row(wave: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EMU_WAVE", wave)
    check_company(lambda cases: asyncio.run(run_on(open_rig(), OpenSpec(), cases)))


@pytest.mark.parametrize("order", ["0", "7", "1"])
def test_terms_equal_the_reference(order: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In programs for few rows and for many, with threads in several orders."""
    monkeypatch.setenv("EMU_ORDER", order)
    cases = [replace(case, spare=spare) for case in adapter_cases() for spare in (0, MANY)]
    for case, got in zip(cases, asyncio.run(run_on(open_rig(), OpenSpec(), cases)), strict=True):
        assert max(errors(got, reference_result(case))) <= TOLERANCE


def results(*cases: OpCase) -> list[dict[str, Any]]:
    return [dict(one.views) for one in asyncio.run(run_on(open_rig(), OpenSpec(), list(cases)))]


@pytest.mark.parametrize("spare", [0, 20])
@pytest.mark.parametrize("kind", ["q8_0", "f16"])
def test_a_deferred_norm_has_the_bits_of_the_fused_sum(kind: str, spare: int) -> None:
    weights = {"weight": weight(kind, 1, 96, 64), "gain": vector(2, 96)}
    views = {"z": empty(3, deferred_cols(96)), "y": array(3, 3, 96), "x": array(4, 3, 64)}
    case = OpCase(op="linear_add_norm", views=views, weights=weights, attrs={"scale": 0.5}, spare=spare)
    (fused,) = results(case)
    views = {"z": views["z"], "y": fused["y"]}
    (alone,) = results(OpCase(op="defer_norm", views=views, weights={"gain": weights["gain"]}))
    assert np.array_equal(alone["z"], fused["z"])


@pytest.mark.parametrize("spare", [0, 20])
@pytest.mark.parametrize("kind", ["q8_0", "f32"])
def test_a_gated_product_of_a_wide_norm_has_the_bits_of_its_parts(kind: str, spare: int) -> None:
    """Wide: more squares than threads that add them, whose order shows in some of the rows."""
    n, rows, f = 2048, 8, 32
    shared: Any = {"weights": {"weight": weight(kind, 6, 2 * f, n)}, "spare": spare}
    for seed in range(8):
        x = array(seed, rows, n)
        views = {"x": np.hstack([x, (x * x).reshape(rows, n // QUAD, QUAD).sum(axis=2)])}
        glu, pair = {"y": empty(rows, f)}, {"y": empty(rows, 2 * f)}
        act, eps = {"act": "silu"}, {"eps": 1e-5}
        fused, both = results(
            OpCase(op="norm_linear_glu", views={**glu, **views}, attrs={**act, **eps}, **shared),
            OpCase(op="norm_linear", views={**pair, **views}, attrs=eps, **shared),
        )
        halves = {"gate": both["y"][:, :f], "up": both["y"][:, f:]}
        (parts,) = results(OpCase(op="glu", views={**glu, **halves}, attrs=act))
        assert np.array_equal(parts["y"], fused["y"])
