"""Engine features of a request: reuse, overflow, timeouts, priority, forks, speculation, timings."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence as Seq
from dataclasses import replace
from itertools import count
from types import SimpleNamespace
from typing import Any

import pytest
from tests.support.engine_fakes import (
    GREEDY,
    PAGE_ROWS,
    STATES,
    VOCAB,
    HashBackend,
    collect,
    expected_ids,
    logits_of,
    make_engine,
    open_engine,
    request,
)

from camelid.engine.engine import StepEngine
from camelid.engine.metrics import StepStats
from camelid.engine.programs import Limits
from camelid.engine.sequence import Sequence
from camelid.engine.speculative import NgramLookup, proposer_of
from camelid.errors import RequestError
from camelid.sampling.host import HostSampler, Scores
from camelid.sampling.params import SamplingParams

PROMPT = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9]


def run(engine: StepEngine, prompt: Seq[int], n: int = 8, **more: Any) -> tuple[list[int], Any]:
    """Token ids and completion of one request."""

    async def work() -> tuple[list[int], Any]:
        stream = engine.submit(request(prompt, n, **more))
        ids = await collect(stream)
        await stream.aclose()
        return ids, stream.completion

    return asyncio.run(work())


def engine_of(**more: Any) -> StepEngine:
    return asyncio.run(make_engine(HashBackend(), **more))


# Reuse


def test_a_second_turn_computes_only_new_rows() -> None:
    engine = engine_of()
    first, _ = run(engine, PROMPT)
    turn = [*PROMPT, *first, 77, 78, 79]
    before = engine.counters.prefill_rows
    ids, done = run(engine, turn)
    assert ids == expected_ids(turn, 8)
    n_computed = len(PROMPT) + len(first) - 1  # the last id was sampled; its row never ran
    assert done.usage.cached_tokens == n_computed
    assert engine.counters.prefill_rows - before == len(turn) - n_computed
    assert engine.counters.prefix_hits == 1
    assert engine.is_idle


def test_a_request_may_bypass_the_prefix_cache_or_salt_it() -> None:
    engine = engine_of()
    run(engine, PROMPT)
    asked: list[dict[str, Any]] = [{"reuses": False}, {"salt": "mine"}]
    for more in asked:
        ids, done = run(engine, PROMPT, **more)
        assert (ids, done.usage.cached_tokens) == (expected_ids(PROMPT, 8), 0)
    assert run(engine, PROMPT, salt="mine")[1].usage.cached_tokens == 12


def test_cached_pages_are_evicted_when_units_are_needed() -> None:
    engine = engine_of(n_pages=6)
    run(engine, PROMPT, 8)
    for start in range(100, 160, 20):
        prompt = range(start, start + 13)
        assert run(engine, prompt)[0] == expected_ids(prompt, 8)
    assert engine.counters.evicted_units > 0
    assert run(engine, PROMPT)[1].usage.cached_tokens == 0


# Overflow


def test_overflow_stop_ends_at_the_context_length() -> None:
    ids, done = run(engine_of(context=20), PROMPT, 50, overflow="stop")
    assert ids == expected_ids(PROMPT, 7)
    assert done.finish_reason == "length"


@pytest.mark.parametrize("n_keep", [0, 4, 99])
def test_shift_continues_as_a_fresh_request_with_the_kept_tokens(n_keep: int) -> None:
    engine = engine_of(context=20)
    ids, done = run(engine, PROMPT, 40, overflow="shift", n_keep=n_keep)
    context, want = list(PROMPT), list[int]()
    while len(want) < 40:
        if len(context) == 20:
            kept = min(n_keep, 18)  # drops at least one token, never the last
            context = context[:kept] + context[kept + (20 - kept) // 2 :]
        (token_id,) = expected_ids(context, 1)
        context.append(token_id)
        want.append(token_id)
    assert ids == want == done.token_ids
    assert engine.counters.shifted > 2
    assert engine.is_idle


def test_the_hosts_noise_continues_over_shifts() -> None:
    """The noise is keyed by the total number of tokens, not by the number that remain."""
    params = SamplingParams(seed=3, temperature=2.0, typical_p=0.9)
    engine = asyncio.run(open_engine(HashBackend(), STATES, Limits(8, 3, 20), n_pages=None))
    asked = replace(request(PROMPT, 40, overflow="shift"), sampling=params, eos_ids=frozenset())
    ids = asyncio.run(collect(engine.submit(asked)))
    context, want, sampler = list(PROMPT), list[int](), HostSampler(params, VOCAB)
    while len(want) < 40:
        context = context[10:] if len(context) == 20 else context
        scores = Scores(1.5, None, logits_of(*expected_ids(context, 1)))
        want.append(sampler.draw(scores, context, len(PROMPT) + len(want)))
        context.append(want[-1])
    assert ids == want
    assert engine.counters.shifted > 2
    assert engine.counters.hosted_rows == 40


# Time and order


class Ticks:
    """A clock that advances by one second per reading."""

    def __init__(self) -> None:
        self._seconds = count()

    def __call__(self) -> float:
        return float(next(self._seconds))


def timed_engine(clock: Any, **limits: int) -> StepEngine:
    made = open_engine(
        HashBackend(), STATES, Limits(8, limits.get("parallel", 3), 64), n_pages=None, clock=clock
    )
    return asyncio.run(made)


def test_a_timeout_ends_an_answer_with_its_tokens_so_far() -> None:
    engine = timed_engine(Ticks())
    ids, done = run(engine, PROMPT, 40, timeout_s=30)
    assert done.finish_reason == "timeout"
    assert ids == expected_ids(PROMPT, 40)[: len(ids)]
    assert 0 < len(ids) < 40
    assert engine.counters.timeouts == 1
    assert engine.is_idle


def test_a_fork_has_a_deadline_of_its_own() -> None:
    async def work() -> None:
        engine = await open_engine(HashBackend(), STATES, Limits(8, 3, 64), n_pages=None, clock=Ticks())
        parent = engine.submit(request(PROMPT, 40, timeout_s=60))
        await anext(parent)
        child = await engine.fork(parent.id, choice=1)
        await parent.aclose()
        await collect(child)
        assert child.completion.finish_reason == "timeout"
        assert engine.counters.timeouts == 1

    asyncio.run(work())


def test_a_queue_timeout_ends_only_waiting_requests() -> None:
    async def work() -> None:
        engine = await open_engine(HashBackend(), STATES, Limits(8, 1, 64), n_pages=None, clock=Ticks())
        first = engine.submit(request(PROMPT, 12, queue_timeout_s=8))
        second = engine.submit(request([7, 7], queue_timeout_s=8))
        assert await collect(first) == expected_ids(PROMPT, 12)
        assert await collect(second) == []
        assert second.completion.finish_reason == "timeout"
        assert engine.is_idle

    asyncio.run(work())


def test_a_preempted_request_keeps_its_answer() -> None:
    async def work() -> None:
        engine = await make_engine(HashBackend(), parallel=1)
        low = engine.submit(request(PROMPT, 20))
        got = [(await anext(low)).token_id]
        high = engine.submit(request([8, 9], 4, priority=1))
        high_ids = await collect(high)
        assert engine.counters.preemptions == 1
        assert high_ids == expected_ids([8, 9], 4)
        assert got + await collect(low) == expected_ids(PROMPT, 20)
        assert low.completion.usage.cached_tokens == 0, "rows recomputed after preemption count as cached"
        await low.aclose()
        assert engine.is_idle

    asyncio.run(work())


@pytest.mark.parametrize(("more", "words"), [
    ({"overflow": "roll"}, "overflow is 'roll'"),
    ({"timeout_s": 0}, "timeout_s is 0"),
    ({"queue_timeout_s": "soon"}, "queue_timeout_s is 'soon'"),
    ({"is_atomic": True}, "an atomic prompt has 13 tokens, but a step has room for 6"),
    ({"proposer": NgramLookup, "sampling": SamplingParams(seed=0, typical_p=0.5)}, "speculation needs"),
])  # fmt: skip
def test_unsupported_requests_are_refused_at_once(more: dict[str, Any], words: str) -> None:
    engine = engine_of()
    with pytest.raises(RequestError, match=words):
        engine.submit(replace(request(PROMPT), **more))


def test_an_atomic_prompt_must_fit_beside_the_rows_of_all_others() -> None:
    """In each step, two of 8 rows may belong to the other streams, as long as they run."""
    ids, _ = run(engine_of(), PROMPT[:6], is_atomic=True)
    assert ids == expected_ids(PROMPT[:6], 8)
    with pytest.raises(RequestError, match="an atomic prompt has 7 tokens, but a step has room for 6"):
        run(engine_of(), PROMPT[:7], is_atomic=True)


# Forks


def test_forks_share_computed_rows_and_then_diverge() -> None:
    async def work() -> None:
        engine = await make_engine(HashBackend())
        parent = engine.submit(request(PROMPT, 12))
        begun = [(await anext(parent)).token_id for _ in range(2)]
        rows = engine.counters.prefill_rows
        child = await engine.fork(parent.id, choice=1)
        rest, branch = await asyncio.gather(collect(parent), collect(child))
        want = expected_ids(PROMPT, 12)
        assert begun + rest == want
        assert child.completion.token_ids == want, "greedy forks differ"
        assert want[-len(branch) :] == branch
        assert engine.counters.prefill_rows == rows, "a shared row was computed twice"
        assert engine.counters.copied_units == 1
        assert engine.counters.prefix_hits == 0
        await child.aclose()
        assert engine.is_idle

    asyncio.run(work())


def test_a_fork_copies_its_samplers_state() -> None:
    asked = replace(request(PROMPT), sampling=SamplingParams(seed=1, mirostat=2))
    parent = Sequence(id=1, request=asked, vocab_size=VOCAB, max_tokens=8, limit=64)
    assert parent.sampler
    parent.sampler.mu = 3.25
    child = parent.fork(2, choice=1)
    assert child.sampler and child.sampler is not parent.sampler
    assert (child.sampler.mu, child.sampler.choice) == (3.25, 1)


def test_a_forks_constraint_is_advanced_to_its_answer() -> None:
    class Taking(SimpleNamespace):
        def accept(self, token_id: int) -> bool:
            self.taken.append(token_id)
            return True

    asked = replace(request(PROMPT), constraint=lambda: Taking(taken=[], is_finished=False))
    parent = Sequence(id=1, request=asked, vocab_size=VOCAB, max_tokens=8, limit=64)
    for token_id in (5, 6):
        parent.accept(token_id, 0.0)
    child: Any = parent.fork(2, choice=1)
    assert child.constraint is not parent.constraint
    assert child.constraint.taken == [5, 6]


def test_an_ended_request_cannot_be_forked() -> None:
    async def work() -> None:
        engine = await make_engine(HashBackend(), parallel=1)
        stream = engine.submit(request(PROMPT))
        await collect(stream)
        with pytest.raises(RequestError, match="does not run"):
            await engine.fork(stream.id, choice=1)

    asyncio.run(work())


# Speculation


def proposals(token_ids: Seq[int], most: int = 8) -> list[int]:
    return list(asyncio.run(NgramLookup().propose(token_ids, most, GREEDY)))


def test_ngrams_propose_the_tokens_after_the_longest_latest_match() -> None:
    assert proposals([1, 2, 3, 4, 9, 1, 2, 3]) == [4, 9, 1, 2, 3]
    assert proposals([1, 2, 5, 7, 2, 6, 1, 2], most=2) == [5, 7]
    assert proposals([1, 2, 5, 1, 2, 6, 1, 2], most=1) == [6]
    assert proposals([0, 1, 2, 5, 9, 1, 2, 6, 0, 1, 2], most=1) == [5], "the longest match lost"
    assert proposals([1, 2, 3]) == proposals([1]) == []


def test_ngrams_forget_dropped_tokens() -> None:
    async def work() -> None:
        lookup = NgramLookup()
        await lookup.propose([1, 2, 3, 4, 5, 6, 7, 1, 2], 3, GREEDY)
        assert not await lookup.propose([6, 7, 1, 2], 3, GREEDY)
        assert await lookup.propose([3, 4, 3, 4], 1, GREEDY) == [3], "dropped tokens were remembered"

    asyncio.run(work())


def test_a_proposer_is_a_name_or_an_object() -> None:
    assert proposer_of(None) is None
    assert proposer_of("ngram") is NgramLookup
    lookup = NgramLookup()
    made = proposer_of(lookup)
    assert made
    assert made() is lookup
    with pytest.raises(RequestError, match="speculate is 'magic', expected 'ngram' or an object"):
        proposer_of("magic")


# Figures


def test_a_clock_gives_exact_figures() -> None:
    engine = timed_engine(Ticks())
    _, done = run(engine, PROMPT, 3)
    t = done.timings
    assert t.queue_s > 0
    assert t.ttft_s > t.queue_s
    assert t.total_s > t.ttft_s
    assert t.decode_tps == pytest.approx(1 / t.inter_token_s)
    assert t.prefill_tps == pytest.approx(len(PROMPT) / (t.ttft_s - t.queue_s))


def test_hooks_receive_every_step_in_order() -> None:
    engine, seen = engine_of(), list[StepStats]()
    engine.hooks.append(seen.append)
    run(engine, PROMPT, 3)
    assert [(facts.program, facts.n_sequences, facts.n_rows) for facts in seen[:4]] == [
        ("mixed", 1, 8), ("mixed", 1, 5), ("decode", 1, 1), ("decode", 1, 1)
    ]  # fmt: skip
    assert all(facts.seconds >= 0 for facts in seen)
    assert len(seen) == engine.counters.steps_retired


def test_stats_count_held_and_cached_units() -> None:
    async def work() -> None:
        engine = await make_engine(HashBackend(), parallel=1)
        streams = [engine.submit(request(PROMPT)) for _ in range(2)]
        await anext(streams[0])
        stats = engine.stats()
        assert (stats.n_running, stats.n_waiting, stats.cached_bytes) == (1, 1, 0)
        assert stats.held_bytes >= 13 // PAGE_ROWS * STATES[0].unit_bytes
        for stream in streams:
            await collect(stream)
        stats = engine.stats()
        assert (stats.n_running, stats.n_waiting, stats.held_bytes) == (0, 0, 0)
        assert 0 < stats.cached_bytes < stats.total_bytes

    asyncio.run(work())
