"""Launches of an 8B shape, and rounded twins: outputs that an op writes rounded for the next product."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from tests.cuda.rig import open_rig
from tests.support.gguf_files import write_tiny_llama
from tests.support.model.file_runs import Logits, load_gguf, run

from camelid.engine.programs import DECODE, MIXED
from camelid.loading.deployment import Deployment
from camelid.loading.options import LoadOptions
from camelid.model.presets import PRESETS
from camelid.model.sizes import bare_model
from camelid_native.cuda import lower
from camelid_native.cuda.kernel import Context
from camelid_native.cuda.lower import used_kernels

LAYERS = 32
MOST_A_LAYER, MOST_BESIDE = 6, 9


def launches(program: str, has: tuple[bool, bool] = (False, False), parallel: int = 1) -> Counter[str]:
    """The launches of a program of an 8B shape in Q4_0, by kernel, with the kinds of matrix instructions."""
    model = bare_model(PRESETS["8b"], "q4_0")
    options = LoadOptions(kv_type="f16", parallel=parallel)
    deployment = Deployment.of(model, options, open_rig().capabilities())
    context = Context(deployment.plan(program), deployment.kv_cache().sizes(), *has)
    return Counter(kernel.function for _, kernels in used_kernels(context) for kernel in kernels)


@pytest.mark.parametrize("program", [DECODE, MIXED])
def test_a_layer_has_six_launches(program: str) -> None:
    assert launches(program).total() <= MOST_A_LAYER * LAYERS + MOST_BESIDE


@pytest.mark.parametrize("parallel", [1, 32])
def test_prompts_alone_have_launches_for_the_scales_of_norms(parallel: int) -> None:
    decode, mixed = (launches(program, (True, True), parallel) for program in (DECODE, MIXED))
    assert decode.total() <= MOST_A_LAYER * LAYERS + MOST_BESIDE
    assert mixed["norm_scale"] == 2 * (LAYERS - 1) == mixed.total() - launches(MIXED).total()


def test_only_the_first_and_the_last_product_of_a_step_round_their_input() -> None:
    assert launches(DECODE)["quantize"] == 2


def test_twins_change_no_bit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "tiny.gguf"
    write_tiny_llama(path, seed=3, hidden=64, head_dim=32, ffn=96, context=64)

    how: Any = {"context": 32, "fused": open_rig().capabilities().fused}

    def logits() -> Logits:
        return asyncio.run(run(open_rig(), load_gguf(path), [[3, 1, 4, 1, 5, 9, 2, 6]], 5, **how))

    with_twins = logits()
    monkeypatch.setattr(lower, "twins_of", lambda ops: [])
    assert [list(map(bytes, rows)) for rows in with_twins] == [list(map(bytes, rows)) for rows in logits()]
