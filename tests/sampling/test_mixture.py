"""The mixture of two distributions: its logits against NumPy, and the draws of requests that have one."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np
import pytest

import camelid
from camelid.api.llm import LLM
from camelid.sampling.mixture import Mixing, mixed_logits

PROMPT = "The llama"


@pytest.fixture(scope="module")
def llm() -> Iterator[LLM]:
    with camelid.load("cria", backend="cpu", context=128, threads=1) as loaded:
        yield loaded


class Always:
    """Mixes the same tokens into every row, and notes what it saw."""

    def __init__(self, mixing: Mixing | None) -> None:
        self._mixing = mixing
        self.histories: list[tuple[int, ...]] = []

    def mixing(self, logits: memoryview[float], history: Sequence[int]) -> Mixing | None:
        self.histories.append(tuple(history))
        assert len(logits) > 100
        return self._mixing


def softmax(logits: np.ndarray) -> np.ndarray:
    weights = np.exp(logits - logits.max())
    return weights / weights.sum()


@pytest.mark.parametrize("weight", [0.0, 1e-9, 0.25, 0.5, 0.999])
def test_logits_are_those_of_the_mixture(weight: float) -> None:
    logits = np.random.default_rng(0).normal(size=500).astype(np.float32) * 8
    logits[7] = -np.inf
    q = {3: 0.5, 7: 0.25, int(logits.argmax()): 0.25, 9: 0.0}
    total = float(np.log(np.exp(logits.astype(np.float64)).sum()))
    found, log_sum_exp = mixed_logits(memoryview(array("f", logits.tolist())), total, Mixing(weight, q))
    dense = np.zeros(500)
    dense[list(q)] = list(q.values())
    want = (1 - weight) * softmax(logits.astype(np.float64)) + weight * dense
    assert np.allclose(softmax(np.array(found)), want, rtol=1e-6, atol=1e-15)
    assert np.allclose(np.exp(np.array(found) - log_sum_exp), want, rtol=1e-6, atol=1e-15)


def test_a_nudge_of_q_is_seen() -> None:
    """The comparison above finds an error of one per cent."""
    logits = np.zeros(10, np.float32)
    found, _ = mixed_logits(memoryview(array("f", logits.tolist())), np.log(10.0), Mixing(0.51, {1: 1.0}))
    want = 0.5 * softmax(logits.astype(np.float64)) + 0.5 * np.eye(10)[1]
    assert not np.allclose(softmax(np.array(found)), want, rtol=1e-6)


def test_a_request_draws_from_the_mixture(llm: LLM) -> None:
    """10,000 first tokens at temperature 1 have the probabilities of the mixture, within four deviations."""
    ids = llm.request(PROMPT).prompt_ids
    base = softmax(np.array(llm.logits(ids))[-1].astype(np.float64))
    token = int(base.argmin())
    options = {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0, "max_tokens": 1}
    n, found = 200, Counter[int]()
    for seed in range(n):
        done = drawn(llm, Always(Mixing(0.3, {token: 1.0})), seed=seed, **options)
        found.update(done.token_ids)
    for i, p in ((token, 0.3), (int(base.argmax()), 0.7 * float(base.max()))):
        assert abs(found[i] - n * p) < 4 * (n * p * (1 - p)) ** 0.5 + 1


def drawn(llm: LLM, mixer: Always | None, **options: object) -> camelid.Completion:
    from dataclasses import replace

    async def run() -> camelid.Completion:
        request = replace(llm.request(PROMPT, **options), mixer=mixer)  # type: ignore[arg-type]
        stream = await llm.asubmit(request)
        async for _ in stream:
            pass
        return stream.completion

    return llm._runner.run(run())


def test_log_probabilities_are_the_mixtures(llm: LLM) -> None:
    token = 40
    events = []

    async def run() -> None:
        from dataclasses import replace

        request = llm.request(PROMPT, temperature=0, max_tokens=3, logprobs=3)
        stream = await llm.asubmit(replace(request, mixer=Always(Mixing(0.9, {token: 1.0}))))
        events.extend([event async for event in stream])

    llm._runner.run(run())
    for event in events:
        assert event.token_id == token
        assert event.top_logprobs[0] == (token, event.logprob)
        assert np.log(0.9) <= event.logprob < 0.0


def test_no_mixing_is_the_plain_answer(llm: LLM) -> None:
    """The same tokens as without a mixer, also beside a mixed request; histories grow by the answer."""
    options = {"seed": 5, "max_tokens": 12, "temperature": 0.8}
    plain = drawn(llm, None, **options)
    watcher = Always(None)
    assert drawn(llm, watcher, **options).token_ids == plain.token_ids
    prompt = llm.request(PROMPT).prompt_ids
    assert watcher.histories == [(*prompt, *plain.token_ids[:i]) for i in range(len(watcher.histories))]

    async def both() -> list[list[int]]:
        from dataclasses import replace

        request = llm.request(PROMPT, **options)  # type: ignore[arg-type]
        streams = [
            await llm.asubmit(replace(request, mixer=mixer))
            for mixer in (None, Always(Mixing(0.9, {40: 1.0})))
        ]
        for stream in streams:
            async for _ in stream:
                pass
        return [stream.completion.token_ids for stream in streams]

    first, second = llm._runner.run(both())
    assert first == plain.token_ids
    assert second.count(40) > len(second) // 2


def test_a_grammar_masks_the_mixture(llm: LLM) -> None:
    """The mixed token is drawn where the grammar allows it, and only there."""
    yes, no = (llm.tokenize(word)[0] for word in ("yes", "no"))
    for token, want in ((yes, "yes"), (no, "no"), (40, None)):
        done = drawn(llm, Always(Mixing(0.999, {token: 1.0})), choice=["yes", "no"], temperature=0)
        assert done.text in ("yes", "no")
        assert want in (None, done.text)


def test_speculation_is_refused_by_name(llm: LLM) -> None:
    with pytest.raises(camelid.RequestError, match="memory"):
        drawn(llm, Always(None), speculate="ngram", max_tokens=4)
