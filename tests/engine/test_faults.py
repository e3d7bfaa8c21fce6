"""A faulty request, or a fault in one request's step, affects no other request."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise, repeat
from typing import Any

import pytest
from tests.support.engine_fakes import (
    GREEDY,
    STATES,
    VOCAB,
    HashBackend,
    collect,
    expected_ids,
    open_engine,
    request,
)
from tests.support.engine_leaks import leaks

from camelid.backends.base import Backend, Result, Ticket
from camelid.engine import recovery
from camelid.engine.engine import StepEngine
from camelid.engine.pace import MIN_PREFILL_ROWS
from camelid.engine.programs import CANDIDATES, GUIDED, MIXED, Limits
from camelid.engine.sequence import Sequence as Running
from camelid.engine.stream import Stream
from camelid.errors import BackendError, DeviceLostError, RequestError
from camelid.requests.output_text import TextReader
from camelid.sampling import host as samplers
from camelid.sampling.params import SamplingParams

PROMPT = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9]
PENALISED = SamplingParams(temperature=0.0, seed=0, repeat_penalty=1.1, repeat_last_n=8)


def engine_of(backend: HashBackend | None = None, *limits: int) -> Coroutine[Any, Any, StepEngine]:
    return open_engine(backend or HashBackend(), STATES, Limits(*(limits or (8, 3, 64))), n_pages=None)


def run(work: Coroutine[Any, Any, None]) -> None:
    """Runs `work` within seconds: a starving request is a failure, too."""
    asyncio.run(asyncio.wait_for(work, 10))


async def end(engine: StepEngine) -> None:
    """Retires the steps in flight; then all units must be free."""
    while await engine.step():
        pass
    assert list(leaks(engine)) == []


# Speculation


class Proposes:
    """A proposer with constant drafts, or an error."""

    def __init__(self, what: Any) -> None:
        self._what = what

    async def propose(self, token_ids: Sequence[int], most: int, sampling: SamplingParams) -> Any:
        if isinstance(self._what, Exception):
            raise self._what
        return self._what


@pytest.mark.parametrize(
    ("what", "words"),
    [
        (ValueError("no idea"), "Proposes raised ValueError: no idea"),
        (RequestError("the draft model was closed", field="llm"), "the draft model was closed"),
        (None, "Proposes raised TypeError"),
        (3, "Proposes raised TypeError"),
        ([5, -1], f"Proposes proposed -1, expected ids from 0 to {VOCAB - 1}"),
        ([VOCAB], f"proposed {VOCAB}"),
        ([1 << 40], "proposed"),
        ([True], "proposed True"),
        (["a"], "proposed 'a'"),
        ([1.0], "proposed 1.0"),
    ],
)
def test_a_faulty_proposer_ends_its_own_request(what: Any, words: str) -> None:
    async def work() -> None:
        engine = await engine_of()
        bad = engine.submit(request(PROMPT, 12, proposer=lambda: Proposes(what)))
        same = engine.submit(request([6, 7], 12, proposer=lambda: Proposes([5, 6])))
        plain = engine.submit(request([6], 12))
        with pytest.raises(RequestError, match=words):
            await collect(bad)
        assert await collect(same) == expected_ids([6, 7], 12)
        assert await collect(plain) == expected_ids([6], 12)
        await end(engine)

    run(work())


def test_drafts_are_cut_to_the_limit() -> None:
    async def work() -> None:
        engine = await engine_of()
        stream = engine.submit(request(PROMPT, 12, proposer=lambda: Proposes(repeat(5))))
        assert await collect(stream) == expected_ids(PROMPT, 12)
        assert engine.counters.drafted > 0
        await end(engine)

    run(work())


# Hooks and devices


def test_a_failing_hook_affects_no_request_and_is_reported() -> None:
    async def work() -> None:
        engine, told = await engine_of(), list[Mapping[str, Any]]()
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: told.append(context))
        error = ValueError("this hook is broken")

        def hook(facts: object) -> None:
            raise error

        engine.hooks.append(hook)
        assert await collect(engine.submit(request([6], 12))) == expected_ids([6], 12)
        assert [context["exception"] for context in told] == [error] * engine.counters.steps_retired
        await end(engine)

    run(work())


def test_history_that_cannot_be_written_ends_its_own_request() -> None:
    class Unwritable(HashBackend):
        async def write_state(self, group: str, unit: int, data: bytes) -> None:
            raise BackendError("the device takes nothing", backend="hash")

    async def work() -> None:
        engine = await engine_of(Unwritable())
        await collect(engine.submit(request(PROMPT, 12)))
        bad = engine.submit(replace(request([*PROMPT, 5], 12), sampling=PENALISED))
        other = engine.submit(request([6], 12))
        with pytest.raises(BackendError, match="takes nothing"):
            await collect(bad)
        assert await collect(other) == expected_ids([6], 12)
        await end(engine)

    run(work())


class Gone(HashBackend):
    """A device that is lost again at the first step after each recovery, or never comes back."""

    comes_back: bool = True
    n_tries: int = 0

    async def recover(self) -> bool:
        self.n_tries += 1
        if not self.comes_back:
            raise BackendError("no adapter was found", backend="hash")
        await super().recover()
        self.is_lost = True
        return True


@pytest.mark.parametrize(
    ("comes_back", "told"),
    [(True, ", 3 times in a row"), (False, "; it .* opened again: no adapter was found")],
)
def test_a_device_that_is_lost_again_and_again_is_told(
    comes_back: bool, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recovery, "PAUSE_S", 0)

    async def work() -> None:
        backend = Gone(is_lost=True)
        backend.comes_back = comes_back
        engine = await engine_of(backend)
        streams = [engine.submit(request([6 + i], 12)) for i in range(4)]  # one more than run at once
        for stream in streams:
            with pytest.raises(DeviceLostError, match=f"^test{told}; load"):
                await collect(stream)
        assert backend.n_tries == recovery.MOST_LOSSES
        monkeypatch.setattr(Gone, "recover", HashBackend.recover)
        assert await collect(engine.submit(request([6], 12))) == expected_ids([6], 12)
        await end(engine)

    run(work())


def test_a_device_that_cannot_be_opened_again_ends_every_request() -> None:
    class Once(HashBackend):
        async def recover(self) -> bool:
            return await Backend.recover(self)

    async def work() -> None:
        engine = await engine_of(Once(is_lost=True))
        for stream in [engine.submit(request([6 + i], 12)) for i in range(4)]:
            with pytest.raises(DeviceLostError, match=r"^the device is lost$"):
                await collect(stream)
        await end(engine)

    run(work())


def test_a_recovery_that_is_cancelled_is_taken_up_again() -> None:
    class Slow(HashBackend):
        async def recover(self) -> bool:
            await asyncio.sleep(0.01)
            return await super().recover()

    async def work() -> None:
        engine = await engine_of(Slow(is_lost=True))
        stream = engine.submit(request(PROMPT, 12))
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(anext(stream), 0.001)
        assert await collect(stream) == expected_ids(PROMPT, 12)
        assert engine.counters.recoveries == 1
        await end(engine)

    run(work())


def test_missing_output_rows_are_an_error() -> None:
    class Short(HashBackend):
        async def read(self, ticket: Ticket) -> Result:
            return (await super().read(ticket))[:-1]

    async def work() -> None:
        engine = await engine_of(Short())
        with pytest.raises(BackendError, match="returned 0 rows, expected 1"):
            await collect(engine.submit(request([6], 12)))
        await end(engine)

    run(work())


def test_rows_of_a_lost_step_are_not_cached() -> None:
    async def work() -> None:
        lost: dict[int, Exception] = {1: BackendError("the device hiccupped", backend="hash")}
        engine = await engine_of(HashBackend(depth=2, read_faults=lost))
        stream = engine.submit(request(PROMPT, 12))
        await engine.step()  # two are in flight, and the first retires
        engine.cancel(stream.id)
        await end(engine)
        assert engine.counters.failed_steps == 1
        assert await collect(engine.submit(request([*PROMPT, 7], 12))) == expected_ids([*PROMPT, 7], 12)
        await end(engine)

    run(work())


def test_all_logits_are_requested_only_while_candidates_do_not_suffice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(samplers, "SHORT_LIST", 0)  # also for 1,000 tokens, the likeliest are tried first

    async def work() -> None:
        engine, programs = await engine_of(), list[str]()
        engine.hooks.append(lambda facts: programs.append(facts.program))
        hosted = SamplingParams(
            temperature=5.0,
            top_k=0,
            top_p=1.0,
            min_p=0.0,
            seed=3,
            logit_bias=tuple((i, 0.5) for i in range(17)),
        )
        await collect(engine.submit(replace(request(PROMPT, 40), sampling=hosted)))
        n_again = sum(pair == (CANDIDATES, GUIDED) for pair in pairwise(programs))
        assert n_again == engine.counters.full_logits_rows > 2
        assert (GUIDED, GUIDED) in pairwise(programs), "a row with all logits ran again"
        assert sum(pair == (GUIDED, CANDIDATES) for pair in pairwise(programs)) >= n_again - 1
        await end(engine)

    run(work())


# Time


def text_of(prompt: list[int], n: int) -> str:
    return "".join(chr(97 + i % 26) for i in expected_ids(prompt, n))


@pytest.mark.parametrize("reason", ["timeout", "cancelled"])
def test_a_truncated_answer_has_the_text_of_all_its_tokens(reason: str) -> None:
    class HoldsBack:
        """Holds the last two letters back until the end."""

        stop_sequence: str | None = None
        held = ""

        def push(self, token_id: int) -> str:
            self.held += chr(97 + token_id % 26)
            shown, self.held = self.held[:-2], self.held[-2:]
            return shown

        def flush(self) -> str:
            return self.held

        def take(self) -> tuple[()]:
            return ()

    now = [0.0]

    async def work() -> None:
        engine = await open_engine(
            HashBackend(), STATES, Limits(8, 3, 64), n_pages=None, clock=lambda: now[0]
        )
        stream = engine.submit(request([4, 2], 30, reader=lambda: TextReader(HoldsBack()), timeout_s=5.0))
        text = "".join([(await anext(stream)).text for _ in range(6)])
        if reason == "timeout":
            now[0] = 10.0
        else:
            engine.cancel(stream.id)
        text += "".join([event.text async for event in stream])
        done = stream.completion
        assert done.finish_reason == reason
        assert text == done.text == text_of([4, 2], len(done.token_ids))
        await end(engine)

    run(work())


def test_timeouts_hold_no_ended_request() -> None:
    async def work() -> None:
        engine = await engine_of()
        before = n_objects()
        for i in range(20):
            await collect(engine.submit(request([6, i], 2, timeout_s=1000.0)))
        assert n_objects() <= before  # another test's may have gone

    def n_objects() -> int:
        gc.collect()
        return sum(type(o) is Running for o in gc.get_objects())

    run(work())


# Units


async def begun(engine: StepEngine, prompt: list[int], n: int) -> tuple[Stream, list[int]]:
    stream = engine.submit(request(prompt, n))
    return stream, [(await anext(stream)).token_id or 0]


def test_a_fork_without_an_allocation_waits_for_one() -> None:
    async def work() -> None:
        engine = await engine_of(None, 8, 1, 64)
        parent, first = await begun(engine, PROMPT, 12)
        child = await engine.fork(parent.id, choice=0)
        assert engine.n_waiting == 1
        rest, branch = await asyncio.gather(collect(parent), collect(child))
        want = expected_ids(PROMPT, 12)
        assert first + rest == want
        assert want[-len(branch) :] == branch
        assert child.completion.token_ids == want
        assert child.completion.usage.cached_tokens > 0
        await end(engine)

    run(work())


def test_a_preempted_page_is_no_copy_source_in_the_same_step() -> None:
    """Five pages: two sequences that continue from shared pages need one page each, and only one is free. The
    second sequence must not get the source page of the first one's copy, although preempting the last
    sequence, its other holder, would free it.
    """

    async def work() -> None:
        backend = HashBackend(depth=1)
        engine = await open_engine(backend, STATES, Limits(8, 4, 20), n_pages=5)
        prompts = [[1, 2, 3, 4, 5], [11, 12, 13, 14, 15]]
        streams = [engine.submit(request(prompt, 8)) for prompt in prompts]
        while engine.counters.steps_retired < 2:
            await engine.step()
        children = [await engine.fork(stream.id, choice=0) for stream in reversed(streams)]
        answers = await asyncio.gather(*(collect(stream) for stream in (*streams, *children)))
        assert answers[:2] == [expected_ids(prompt, 8) for prompt in prompts]
        assert [child.completion.token_ids for child in children] == answers[1::-1]
        assert engine.counters.copied_units > 0
        assert engine.counters.preemptions > 0
        await end(engine)

    run(work())


@pytest.mark.parametrize(("n_prompt", "is_atomic"), [(59, True), (19, False)])
def test_a_slow_device_runs_prompts_beside_any_number_of_streams(n_prompt: int, *, is_atomic: bool) -> None:
    """A pace of one row in ten steps: an atomic prompt still runs, and 40 streams leave rows for prompts."""

    async def work() -> None:
        parallel = 3 if is_atomic else 48
        engine = await engine_of(None, 64, parallel, 256)
        others = [engine.submit(request([6 + i], 200)) for i in range(min(parallel - 1, 40))]
        for other in others:
            await anext(other)
        engine._scheduler.prefill_budgets[MIXED].observe(0, 1, 1e9, generates=False)  # type: ignore[reportPrivateUsage]
        prompt = list(range(1, n_prompt + 1))
        stream = engine.submit(request(prompt, 3, is_atomic=is_atomic))
        before = engine.counters.steps_retired
        assert await collect(stream) == expected_ids(prompt, 3)
        assert engine.counters.steps_retired - before < 12

    run(work())


@pytest.mark.parametrize("all_logits", [False, True])
@pytest.mark.parametrize("logprobs", [0, 3])
def test_prompts_beside_streams_of_any_program_keep_the_budget(logprobs: int, *, all_logits: bool) -> None:
    """Streams with log-probabilities generate in steps of their own, which a prompt's step delays, too."""

    async def work() -> None:
        engine = await engine_of(None, 16, 3, 256)
        sampling = replace(GREEDY, logprobs=logprobs)
        other = engine.submit(replace(request([6], 200), sampling=sampling))
        await anext(other)
        for budget in engine._scheduler.prefill_budgets.values():  # type: ignore[reportPrivateUsage]
            for depth in (0, 1, 2, 4, 8, 16, 32):
                budget.observe(depth, 1, 1e9, generates=False)
        rows: list[int] = []
        engine.hooks.append(lambda step: rows.append(step.n_rows))
        prompt = list(range(1, 60))
        await collect(engine.submit(request(prompt, None if all_logits else 3, all_logits=all_logits)))
        assert max(rows) <= MIN_PREFILL_ROWS + 1
        assert sum(rows) >= len(prompt)

    run(work())
