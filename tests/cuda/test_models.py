"""Whole models on the rig: cria's greedy tokens, golden architectures, and promise A in the engine."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.cuda.rig import open_rig
from tests.engine.test_promises import DRAWN, GREEDY, opened_case
from tests.parity.test_cria import ALL, PARALLEL, SEED, answer, mismatches, staged_answers, wanted
from tests.support import promise_runs
from tests.support.exhaustive import every, share_of
from tests.support.gguf_files import write_tiny_llama
from tests.support.hf_models import HfCase, load_cases
from tests.support.parity.arch_runs import check_logits
from tests.support.promise_runs import SITUATIONS, alone

import camelid
from camelid_native.cuda import backend
from cria.graded_items import first_prompts

pytestmark = [pytest.mark.parity, pytest.mark.slow]

CASES = load_cases()
SPLIT = 2  # prompts of a model in parts
COMPANY = ("among 8 others", "run ahead")
CRIA = Path(camelid.__file__).with_name("data") / "cria.gguf"


@pytest.fixture(autouse=True)
def rig(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets `cuda` name the rig."""
    monkeypatch.setattr(backend, "open_backend", open_rig)
    backends: Any = promise_runs.BACKENDS
    monkeypatch.setitem(backends, "cuda", open_rig)


async def answers(prompts: Sequence[str], **options: Any) -> list[list[int]]:
    """cria's answers to all prompts at once."""
    async with await camelid.aload(str(CRIA), backend="cuda", parallel=PARALLEL, **options) as llm:
        assert "emulator" in llm.capabilities.device
        return list(await asyncio.gather(*(answer(llm, prompt) for prompt in prompts)))


@pytest.mark.exhaustive  # ordinary runs have them on two devices, and beside the processor
@pytest.mark.parametrize("n_prompts", [SPLIT, ALL])
def test_tokens_of_cria_equal_the_reference(n_prompts: int) -> None:
    prompts, want = first_prompts(SEED, n_prompts), wanted(CRIA, n_prompts)
    assert mismatches(CRIA, prompts, asyncio.run(answers(prompts)), want) == []


@pytest.mark.parametrize("layers", share_of([3, 1, 2, 4]))
def test_tokens_of_cria_split_with_cpu_equal_the_reference(layers: int) -> None:
    prompts, want = first_prompts(SEED, SPLIT), wanted(CRIA, SPLIT)
    assert mismatches(CRIA, prompts, asyncio.run(answers(prompts, gpu_layers=layers)), want) == []


def test_stages_on_two_devices_run_at_once() -> None:
    """Two steps in flight, one on each device, and the reference's tokens."""
    prompts, want = first_prompts(SEED, SPLIT), wanted(CRIA, SPLIT)
    assert mismatches(CRIA, prompts, asyncio.run(staged_answers(CRIA, open_rig, prompts)), want) == []


@pytest.mark.parametrize("case", every(60, CASES), ids=str)
def test_logits_of_architectures_equal_the_reference(case: HfCase, tmp_path: Path) -> None:
    check_logits(open_rig, case, "", tmp_path, fused=open_rig().capabilities().fused)


@pytest.mark.parametrize("wave", share_of(["32", "64"]))
@pytest.mark.parametrize("sampling", share_of([DRAWN, GREEDY]))
@pytest.mark.parametrize("situation", share_of(reversed(COMPANY)))
def test_company_changes_no_bit(
    situation: str, sampling: Any, wave: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EMU_WAVE", wave)
    write_tiny_llama(tmp_path / "tiny.gguf", seed=3, hidden=64, head_dim=16, ffn=96, context=512)
    case = opened_case(tmp_path / "tiny.gguf", backend="cuda", sampling=sampling)
    assert asyncio.run(SITUATIONS[situation](case)) == asyncio.run(alone(case))
