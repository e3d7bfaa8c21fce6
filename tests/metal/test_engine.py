"""Whole models on Metal's text: tokens of cria, architectures, KV types, promise A, directories of MLX."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.engine.test_promises import DRAWN, GREEDY, opened_case
from tests.metal.on_rig import MetalOnRig
from tests.parity.test_cria import ALL, PARALLEL, SEED, answer, mismatches, wanted
from tests.support import promise_runs
from tests.support.exhaustive import every, share_of
from tests.support.gguf_files import write_tiny_llama
from tests.support.hf_models import HfCase, load_case, load_cases, nmse
from tests.support.mlx_dirs import FOLDER, stored_ids, stored_logits
from tests.support.model.file_runs import load_hf, run
from tests.support.parity.arch_runs import check_logits
from tests.support.promise_runs import SITUATIONS, alone

import camelid
from camelid.errors import BackendError
from camelid_native.mlx import backend
from camelid_native.mlx.ops_metal import FUSED
from cria.graded_items import first_prompts

pytestmark = [pytest.mark.parity, pytest.mark.slow]

CRIA = Path(camelid.__file__).with_name("data") / "cria.gguf"
FEW_PROMPTS = 1
LENGTH = 12  # tokens of a directory's sequences that run
COMPANY = ("among 8 others", "run ahead")


@pytest.fixture(autouse=True)
def rig(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets `mlx` name the rig."""
    monkeypatch.setattr(backend, "open_backend", MetalOnRig)
    backends: Any = promise_runs.BACKENDS
    monkeypatch.setitem(backends, "mlx", MetalOnRig)


async def answers(prompts: Sequence[str]) -> list[list[int]]:
    async with await camelid.aload(str(CRIA), backend="mlx", parallel=PARALLEL) as llm:
        assert "Metal's text" in llm.capabilities.device and llm.capabilities.fused == FUSED
        return list(await asyncio.gather(*(answer(llm, prompt) for prompt in prompts)))


@pytest.mark.exhaustive  # ordinary runs have cria's logits, and its tokens at a KV type
@pytest.mark.parametrize("n_prompts", [FEW_PROMPTS, ALL])
def test_tokens_of_cria_equal_the_reference(n_prompts: int) -> None:
    prompts, want = first_prompts(SEED, n_prompts), wanted(CRIA, n_prompts)
    assert mismatches(CRIA, prompts, asyncio.run(answers(prompts)), want) == []


def few(case: HfCase) -> HfCase:
    """The case with short sequences: a rig's step takes a tenth of a second."""
    return replace(case, token_ids=[ids[:LENGTH] for ids in case.token_ids])


NARROW = "gemma3n"  # its routers have rows of 3


@pytest.mark.parametrize("case", every(60, [case for case in load_cases() if case.name != NARROW]), ids=str)
def test_logits_of_architectures_equal_the_reference(case: HfCase, tmp_path: Path) -> None:
    check_logits(MetalOnRig, few(case), "", tmp_path, fused=FUSED)


def test_narrow_matrices_are_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(BackendError, match="altup_predict_coef has rows of 3, not of a multiple of 8"):
        check_logits(MetalOnRig, few(load_case(NARROW)), "", tmp_path, fused=FUSED)


@pytest.mark.parametrize("name", share_of(sorted(path.name for path in FOLDER.iterdir())))
def test_directories_of_mlx_have_the_logits_of_mlx_lm(name: str) -> None:
    ids = [ids[:LENGTH] for ids in stored_ids(name)]
    got = asyncio.run(run(MetalOnRig(), load_hf(FOLDER / name), ids, 5, fused=FUSED))
    want = [logits[:LENGTH] for logits in stored_logits(name)]
    assert nmse([np.array(logits) for logits in got], want) < 1e-10


@pytest.mark.parametrize("sampling", share_of([DRAWN, GREEDY]))
@pytest.mark.parametrize("situation", share_of(reversed(COMPANY)))
def test_company_changes_no_bit(situation: str, sampling: Any, tmp_path: Path) -> None:
    write_tiny_llama(tmp_path / "tiny.gguf", seed=3, hidden=64, head_dim=16, ffn=96, context=512)
    case = opened_case(tmp_path / "tiny.gguf", backend="mlx", sampling=sampling)
    assert asyncio.run(SITUATIONS[situation](case)) == asyncio.run(alone(case))


@pytest.mark.parametrize("kv_type", share_of(["two-tier", "q8_0", "q4_0", "f32"]))
def test_the_engine_has_the_references_tokens_at_every_kv_type(kv_type: str) -> None:
    prompt, found = first_prompts(SEED, 1)[0], list[list[int]]()
    for name in ("mlx", "reference"):
        with camelid.load(str(CRIA), backend=name, kv_type=kv_type, parallel=1) as llm:
            found.append(llm.generate(prompt, max_tokens=6, temperature=0.0).token_ids)
    assert found[0] == found[1]
