"""Adapters by Metal's kernels: whole models, bits of rows without an adapter, and of parts of fused ops."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.metal.on_rig import MetalOnRig, result
from tests.support.exhaustive import exhaustive, share_of
from tests.support.gguf_files import write_tiny_llama
from tests.support.hf_models import load_case, write_hf
from tests.support.model.file_runs import load_hf
from tests.support.parity.adapter_checks import check_adapters, check_company, quantized
from tests.support.parity.case_tools import array, empty, vector, weight

from camelid.backends.common.op_runner import OpCase
from camelid.plan.op_rows_fused import deferred_cols
from camelid_native.mlx.ops_metal import FUSED

pytestmark = pytest.mark.parity

BOUND = 1e-10  # NMSE of logits
GOLDEN = ["llama31", "qwen3_moe", "qwen3", "gemma3", "gpt_oss"]


@pytest.mark.slow
@pytest.mark.parametrize("steps", ["many", exhaustive("few")])
@pytest.mark.parametrize("name", share_of(GOLDEN))
def test_golden_models_with_adapters_equal_the_reference(name: str, steps: str, tmp_path: Path) -> None:
    loaded = load_hf(write_hf(tmp_path / name, load_case(name), dtype="f16"))
    check_adapters(MetalOnRig(), loaded, FUSED, steps=steps, bound=BOUND)


@pytest.mark.slow
@pytest.mark.parametrize("steps", [exhaustive("few"), exhaustive("many")])
def test_a_mix_of_types_with_adapters_equals_the_reference(steps: str, tmp_path: Path) -> None:
    write_tiny_llama(tmp_path / "whole.gguf", seed=5, context=64, type="f16")
    loaded = quantized(tmp_path / "whole.gguf", tmp_path, "q4_k_m")
    check_adapters(MetalOnRig(), loaded, FUSED, steps=steps, bound=BOUND)


@pytest.mark.exhaustive
def test_company_changes_no_bit_of_a_row() -> None:
    check_company(lambda cases: [result(case) for case in cases])


@pytest.mark.parametrize("spare", [0, 20])
def test_a_deferred_norm_has_the_bits_of_the_fused_sum(spare: int) -> None:
    weights = {"weight": weight("q8_0", 1, 96, 64), "gain": vector(2, 96)}
    views = {"z": empty(3, deferred_cols(96)), "y": array(3, 3, 96), "x": array(4, 3, 64)}
    case = OpCase(op="linear_add_norm", views=views, weights=weights, attrs={"scale": 0.5}, spare=spare)
    fused = result(case).views
    alone = {"z": views["z"], "y": fused["y"]}
    parts = result(OpCase(op="defer_norm", views=alone, weights={"gain": weights["gain"]}, spare=spare)).views
    assert np.array_equal(parts["z"], fused["z"])


@pytest.mark.parametrize("act", ["silu", "gelu", "swiglu_oai"])
def test_a_gated_product_has_the_bits_of_its_parts(act: str) -> None:
    f, shared = 48, dict[str, Any](weights={"weight": weight("q8_0", 6, 96, 64)})
    x, how = {"x": array(5, 3, 64, scale=4.0)}, {"act": act}
    case: dict[str, Any] = {"attrs": how, **shared}
    fused = result(OpCase(op="linear_glu", views={"y": empty(3, f), **x}, **case)).views
    both = result(OpCase(op="linear", views={"y": empty(3, 2 * f), **x}, **shared)).views["y"]
    halves = {"y": empty(3, f), "gate": both[:, :f], "up": both[:, f:]}
    parts = result(OpCase(op="glu", views=halves, attrs=how)).views
    assert np.array_equal(parts["y"], fused["y"])
