"""cria, greedy, on the grader's first prompts: every adapter samples the reference's tokens.

The reference answers one prompt at a time; a device answers batches of eight, and some prompts alone: the
batch must change no token. Ordinary runs answer some prompts, exhaustive runs 50.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.support.exhaustive import share_of
from tests.support.parity.adapters import DRIVERS, need_driver

import camelid
from camelid.api.llm import LLM
from camelid.api.runner import Runner
from camelid.backends.base import Backend
from camelid.loading.options import LoadOptions
from camelid.loading.start import start
from cria.graded_items import first_prompts

pytestmark = [pytest.mark.parity, pytest.mark.slow]

SEED, MAX_TOKENS, PARALLEL, N_ALONE = 0, 48, 8, 3
FEW, ALL = 6, 50  # prompts
Answers = list[list[int]]


@pytest.fixture(scope="module")
def path(checkout: Path) -> Path:
    return Path(os.environ.get("CAMELID_CRIA") or checkout / "core" / "camelid" / "data" / "cria.gguf")


async def answer(llm: camelid.LLM, prompt: str) -> list[int]:
    turn = [{"role": "user", "content": prompt}]
    return (await llm.achat(turn, max_tokens=MAX_TOKENS, temperature=0)).token_ids


async def staged_answers(path: Path, make: Callable[[], Backend], prompts: Sequence[str]) -> Answers:
    """Answers to all prompts at once by two backends that have half the layers each and run at once."""

    async def parts() -> list[Backend]:
        return [make(), make()]

    running = await start(str(path), LoadOptions(parallel=PARALLEL), stages=parts)
    assert running.backend.capabilities().n_stages == 2
    async with LLM(running, Runner()) as llm:
        found = list(await asyncio.gather(*(answer(llm, prompt) for prompt in prompts)))
        assert running.backend.memory().counters["stages_at_once"] == 2
        return found


@cache
def wanted(path: Path, n_prompts: int) -> Answers:
    async def one_by_one() -> Answers:
        async with await camelid.aload(str(path), backend="reference") as llm:
            return [await answer(llm, prompt) for prompt in first_prompts(SEED, n_prompts)]

    return asyncio.run(one_by_one())


def margin(path: Path, prompt: str, token_ids: list[int]) -> float:
    """Margin of the reference's best logit over its second after these tokens of the answer."""
    with camelid.load(path, backend="reference") as llm:
        ids = [*llm.render([{"role": "user", "content": prompt}]), *token_ids]
        second, first = np.sort(np.asarray(llm.logits(ids))[-1])[-2:]
    return float(first - second)


def mismatches(path: Path, prompts: list[str], got: Answers, want: Answers) -> list[str]:
    found: list[str] = []
    for prompt, a, b in zip(prompts, got, want, strict=True):
        if a != b:
            same = [x == y for x, y in zip(a, b, strict=False)]
            n = same.index(False) if False in same else len(same)
            found.append(f"{prompt!r}: token {n} differs, top-2 margin {margin(path, prompt, b[:n]):.3g}")
    return found


@pytest.mark.parametrize("n_prompts", share_of([FEW, ALL]))
def test_reference_answers_differ(path: Path, n_prompts: int) -> None:
    assert len(wanted(path, n_prompts)) == n_prompts and all(wanted(path, n_prompts))
    assert len({tuple(answer) for answer in wanted(path, n_prompts)}) > n_prompts // 2


@pytest.mark.parametrize("n_prompts", share_of([FEW, ALL]))
@pytest.mark.parametrize("name", share_of(DRIVERS))
def test_tokens_equal_the_reference(name: str, path: Path, n_prompts: int) -> None:
    prompts, want = first_prompts(SEED, n_prompts), wanted(path, n_prompts)

    async def alone_and_in_company() -> tuple[Answers, Answers]:
        how: Any = {"backend": "vulkan", "adapter": need_driver(name), "parallel": PARALLEL}
        async with await camelid.aload(str(path), **how) as llm:
            assert name in llm.capabilities.device
            alone = [await answer(llm, prompt) for prompt in prompts[:N_ALONE]]
            return alone, list(await asyncio.gather(*(answer(llm, prompt) for prompt in prompts)))

    alone, together = asyncio.run(alone_and_in_company())
    assert mismatches(path, prompts, together, want) == []
    assert alone == want[:N_ALONE]
