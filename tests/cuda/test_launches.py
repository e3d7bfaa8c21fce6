"""Launches of an 8B shape, and rounded twins: outputs that an op writes rounded for the next product."""

from __future__ import annotations

import asyncio
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from tests.cuda.model_shapes import LAYERS, SHAPES
from tests.cuda.rig import open_rig
from tests.support.gguf_files import write_tiny_llama
from tests.support.model.file_runs import Logits, load_gguf, run

from camelid.engine.programs import DECODE, MIXED
from camelid.loading.deployment import Deployment
from camelid.loading.options import LoadOptions
from camelid.model.kv_types import KV_TYPES
from camelid.model.sizes import bare_model
from camelid.plan.plan import Op
from camelid_native.cuda import lower
from camelid_native.cuda.kernel import Context, Kernel
from camelid_native.cuda.lower import used_kernels

MOST_BESIDE = 9
# The most launches a layer of a step of one row.
A_LAYER = {"llama": 6, "qwen3": 6, "gemma3": 10, "qwen3moe": 10}


def used(
    shape: str,
    program: str = DECODE,
    kv_type: str = "f16",
    parallel: int = 1,
    has: tuple[bool, bool] = (False, False),
) -> list[tuple[Op, list[Kernel]]]:
    """The launches of a program in Q4_0, by op, with the kinds of matrix instructions."""
    options = LoadOptions(kv_type=kv_type, parallel=parallel)
    deployment = Deployment.of(bare_model(SHAPES[shape], "q4_0"), options, open_rig().capabilities())
    return used_kernels(Context(deployment.plan(program), deployment.kv_cache().sizes(), *has))


def launches(shape: str, program: str = DECODE, **more: Any) -> Counter[str]:
    found = used(shape, program, **more)
    return Counter(kernel.function for _, kernels in found for kernel in kernels)


def a_layer(shape: str, program: str = DECODE, kv_type: str = "f16") -> int:
    """The most launches from an attention to the next."""
    counts = [(op.name, len(kernels)) for op, kernels in used(shape, program, kv_type)]
    starts = [i for i, (name, _) in enumerate(counts) if name == "attention"]
    return max(sum(n for _, n in counts[a:b]) for a, b in pairwise(starts))


@pytest.mark.parametrize("shape", SHAPES)
def test_launches_of_a_layer(shape: str) -> None:
    assert a_layer(shape) <= A_LAYER[shape]


@pytest.mark.parametrize("shape", ["llama", "qwen3"])
@pytest.mark.parametrize("kv_type", KV_TYPES)
def test_every_kv_type_has_six_launches_a_layer(shape: str, kv_type: str) -> None:
    assert all(a_layer(shape, program, kv_type) <= 6 for program in (DECODE, MIXED))


@pytest.mark.parametrize("program", [DECODE, MIXED])
def test_launches_of_a_step(program: str) -> None:
    assert launches("llama", program).total() <= 6 * LAYERS + MOST_BESIDE


@pytest.mark.parametrize("parallel", [1, 32])
def test_prompts_alone_have_launches_for_the_scales_of_norms(parallel: int) -> None:
    has = (True, True)
    decode, mixed = (launches("llama", p, parallel=parallel, has=has) for p in (DECODE, MIXED))
    assert decode.total() <= 6 * LAYERS + MOST_BESIDE
    assert mixed["norm_scale"] == 2 * (LAYERS - 1) == mixed.total() - launches("llama", MIXED).total()


def test_only_the_first_and_the_last_product_of_a_step_round_their_input() -> None:
    assert launches("llama")["quantize"] == 2


@pytest.mark.parametrize(("parallel", "n_sums"), [(1, 0), (8, 0), (9, 1)])
def test_experts_of_a_layer_have_three_launches(parallel: int, n_sums: int) -> None:
    """Their inputs have twins; pairs of more than 8 rows are sorted for each product."""
    found, n = launches("qwen3moe", parallel=parallel), len(SHAPES["qwen3moe"].layers)
    assert found["quantize"] == 2 and "combine" not in found and "glu" not in found
    assert found["router"] == found["linear_experts_glu"] == n
    assert found["sort_pairs"] == found["sort_codes"] == 2 * n * n_sums
    assert found["linear_experts_sum"] == n - n * n_sums
    assert found["linear_experts"] == found["sum_outputs"] == n * n_sums


def test_twins_change_no_bit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "tiny.gguf"
    write_tiny_llama(path, seed=3, hidden=64, head_dim=32, ffn=96, context=64)

    how: Any = {"context": 32, "fused": open_rig().capabilities().fused}

    def logits() -> Logits:
        return asyncio.run(run(open_rig(), load_gguf(path), [[3, 1, 4, 1, 5, 9, 2, 6]], 5, **how))

    with_twins = logits()
    monkeypatch.setattr(lower, "twins_of", lambda ops: [])
    assert [list(map(bytes, rows)) for rows in with_twins] == [list(map(bytes, rows)) for rows in logits()]
