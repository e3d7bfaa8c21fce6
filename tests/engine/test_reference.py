"""The engine over the NumPy reference: chunks, batches and the engine itself change no bit."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.support.gguf_files import write_tiny_llama

import camelid
from camelid.api.llm import LLM

PROMPT = [5, 300, 7, 260, 90, 12, 44, 280, 101, 3, 77, 19, 270, 33, 250, 8, 61, 290, 15, 120]
OPTIONS = {"backend": "reference", "context": 64}


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("model") / "tiny.gguf"
    write_tiny_llama(place, seed=3, hidden=64, head_dim=16, ffn=96)
    return place


@pytest.fixture(scope="module")
def llm(path: Path) -> Iterator[LLM]:
    with camelid.load(path, **OPTIONS) as loaded:
        yield loaded


def bits(llm: LLM, token_ids: list[int]) -> np.ndarray:
    return np.asarray(llm.logits(token_ids)).view(np.uint32)  # [T, V]


@pytest.fixture(scope="module")
def whole(llm: LLM) -> np.ndarray:
    return bits(llm, PROMPT)


@pytest.mark.parametrize("chunk", [2, 3, 16, 19])
def test_prefill_in_chunks_gives_the_same_bits(path: Path, whole: np.ndarray, chunk: int) -> None:
    with camelid.load(path, **OPTIONS, chunk=chunk, parallel=1) as other:
        assert np.array_equal(bits(other, PROMPT), whole)
        assert other.counters.steps_submitted == -(-len(PROMPT) // chunk)


@pytest.mark.parametrize("chunk", [2, 3, 16, 19])
def test_chunks_without_an_output_lead_to_the_same_answer(path: Path, llm: LLM, chunk: int) -> None:
    options = {"max_tokens": 6, "temperature": 0.9, "seed": 4, "ignore_eos": True}
    with camelid.load(path, **OPTIONS, chunk=chunk, parallel=1) as other:
        done = other.generate(PROMPT, **options)
        assert done.token_ids == llm.generate(PROMPT, **options).token_ids
        assert done.timings.n_steps == -(-len(PROMPT) // chunk) + 5


def test_full_forward_equals_prefill_and_decode(llm: LLM, whole: np.ndarray) -> None:
    """Greedy answers, token by token, equal the argmax of one full forward pass over prompt and answer."""
    done = llm.generate(PROMPT, max_tokens=12, temperature=0.0, ignore_eos=True)
    logits = np.asarray(llm.logits(PROMPT + done.token_ids))
    n = len(PROMPT)
    assert done.token_ids == logits[n - 1 : -1].argmax(axis=1).tolist()
    assert np.array_equal(logits[:n].view(np.uint32), whole)
    assert len(set(done.token_ids)) > 2, "too few distinct tokens to prove anything"


def test_one_by_one_equals_all_at_once(llm: LLM) -> None:
    """Each prefix alone equals its row: a row depends on its own past only."""
    whole = bits(llm, PROMPT)
    for n in (1, 2, 16, 17):
        assert np.array_equal(bits(llm, PROMPT[:n]), whole[:n])


def test_logprob_equals_the_log_softmax_of_the_logits(llm: LLM) -> None:
    (event,) = llm.stream(PROMPT, max_tokens=1, temperature=0.0, ignore_eos=True)
    last = np.asarray(llm.logits(PROMPT))[-1].astype(np.float64)
    assert event.logprob == pytest.approx(last.max() - np.log(np.exp(last).sum()), abs=1e-6)


def test_a_batch_does_not_change_answers(path: Path) -> None:
    prompts = [PROMPT[i : i + 3 + 2 * i] for i in range(6)]

    async def main() -> None:
        async with await camelid.aload(path, **OPTIONS, chunk=8, parallel=3) as llm:
            options = {"max_tokens": 8, "temperature": 0.7, "seed": 11, "ignore_eos": True}
            alone = [await llm.agenerate(p, **options) for p in prompts]
            together = await asyncio.gather(*(llm.agenerate(p, **options) for p in prompts))
            assert [c.token_ids for c in together] == [c.token_ids for c in alone]
            assert llm.is_idle

    asyncio.run(main())


def test_seed_determines_a_draw_and_greedy_ignores_it(llm: LLM) -> None:
    def draw(seed: int, temperature: float) -> list[int]:
        done = llm.generate(PROMPT, max_tokens=8, seed=seed, temperature=temperature, ignore_eos=True)
        assert done.seed == seed
        return done.token_ids

    assert draw(1, 1.5) == draw(1, 1.5)
    assert len({tuple(draw(seed, 1.5)) for seed in range(6)}) > 1
    assert draw(1, 0.0) == draw(2, 0.0)


def test_draws_follow_the_softmax(llm: LLM) -> None:
    """Frequencies of first tokens over 400 seeds, against the probabilities at that temperature."""
    n = 400
    how: Any = {"max_tokens": 1, "temperature": 0.6, "top_k": 0, "top_p": 1.0, "min_p": 0.0}
    streams = [llm.submit(PROMPT[:3], seed=seed, **how) for seed in range(n)]

    async def main() -> list[int]:
        firsts: list[int] = []
        for stream in streams:
            firsts += [event.token_id or 0 async for event in stream]
        return firsts

    counts = np.bincount(asyncio.run(main()), minlength=llm.spec.vocab_size)
    logits = np.asarray(llm.logits(PROMPT[:3]))[-1] / 0.6
    probs = np.exp(logits - logits.max())
    probs /= probs.sum()
    worst = np.abs(counts - n * probs) / np.sqrt(n * probs * (1 - probs) + 1)
    assert worst.max() < 5.0
