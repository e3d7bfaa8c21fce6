"""The engine over a backend that hashes the contents of its pages: order, run-ahead, ends, faults, units."""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any

import pytest
from tests.support.engine_fakes import (
    VOCAB,
    HashBackend,
    ShortSteps,
    collect,
    expected_ids,
    make_engine,
    request,
)
from tests.support.exhaustive import share_of

from camelid.backends.base import OutputRow
from camelid.engine.engine import StepEngine, Stream
from camelid.engine.scheduler import DECODE, MIXED
from camelid.errors import BackendError, RequestError
from camelid.plan.step import FROM_RING
from camelid.requests.output_text import OutputText, TextReader


class Letters:
    """A tokenizer with letter i % 26 for token i."""

    def token_bytes(self, token_id: int) -> bytes:
        return bytes([97 + token_id % 26])

    def opening_bytes(self, token_id: int) -> bytes:
        return self.token_bytes(token_id)

    def is_control(self, token_id: int) -> bool:
        return False


def letters(token_ids: list[int]) -> str:
    return "".join(chr(97 + i % 26) for i in token_ids)


def answer_text(*stops: str) -> Any:
    return lambda: TextReader(OutputText(Letters(), stops))


def test_answer_equals_the_models() -> None:
    async def main() -> None:
        engine = await make_engine(HashBackend())
        stream = engine.submit(request([5, 6, 7], 20))
        assert await collect(stream) == expected_ids([5, 6, 7], 20)
        done = stream.completion
        assert (done.finish_reason, done.usage.prompt_tokens, done.usage.completion_tokens) == (
            "length",
            3,
            20,
        )
        assert done.token_ids == expected_ids([5, 6, 7], 20)
        assert engine.is_idle

    asyncio.run(main())


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_steps_run_ahead_of_reading_as_deep_as_the_backend_allows(depth: int) -> None:
    async def main() -> HashBackend:
        backend = HashBackend(depth=depth)
        engine = await make_engine(backend, clock=ShortSteps())
        assert await collect(engine.submit(request([5], 12))) == expected_ids([5], 12)
        assert engine.counters.max_in_flight == depth
        # With run-ahead, every decode row takes its id from the device.
        assert engine.counters.ring_rows == (11 if depth > 1 else 0)
        assert engine.counters.discarded_rows == 0, "a step was discarded, though max_tokens is known ahead"
        return backend

    backend = asyncio.run(main())
    assert backend.entries == [MIXED] + [DECODE] * 11
    halves = {1: range(12), 2: range(12), 3: [0, 1, 3, 2, 5, 4, 7, 6, 9, 8, 10, 11]}
    assert backend.reads == list(halves[depth]), "steps are not read in pairs, the last first"
    assert all(row.source == FROM_RING for step in backend.steps[1:] for row in step.rows) == (depth > 1)


def test_a_step_beyond_an_end_token_is_discarded() -> None:
    async def main() -> None:
        backend = HashBackend(eos_after={9: 6})
        engine = await make_engine(backend)
        stream = engine.submit(request([9, 1, 2], 30))
        assert await collect(stream) == expected_ids([9, 1, 2], 3)
        assert stream.completion.finish_reason == "stop"
        await stream.aclose()
        assert engine.counters.discarded_rows == 1
        assert engine.is_idle
        assert len(backend.steps) == 5, "steps: prefill, 3 tokens, one discarded"

    asyncio.run(main())


def test_units_of_an_ended_sequence_wait_for_its_steps_in_flight() -> None:
    async def main() -> None:
        engine = await make_engine(HashBackend(eos_after={9: 2}), parallel=1)
        first, second = engine.submit(request([9], 30)), engine.submit(request([8], 5))
        await engine.step()
        await engine.step()
        assert first.completion.finish_reason == "stop"
        assert engine.counters.steps_submitted == 3, "an allocation was reused before its last step retired"
        assert await collect(second) == expected_ids([8], 5)

    asyncio.run(main())


def test_long_prompt_runs_in_chunks_after_the_decode_rows() -> None:
    async def main() -> HashBackend:
        backend = HashBackend()
        engine = await make_engine(backend, chunk=8)
        first = engine.submit(request([3], 12))
        await engine.step()
        prompt = list(range(10, 40))
        second = engine.submit(request(prompt, 6))
        got = await asyncio.gather(collect(first), collect(second))
        assert list(got) == [expected_ids([3], 12), expected_ids(prompt, 6)]
        return backend

    backend = asyncio.run(main())
    mixed = [
        [s.rows for s in step.sequences]
        for step, entry in zip(backend.steps, backend.entries, strict=True)
        if entry == MIXED
    ]
    assert mixed[1:] == [[1, 7], [1, 7], [1, 7], [1, 7], [1, 2]]


def test_a_batch_does_not_change_an_answer() -> None:
    prompts = [[i, *range(i, 3 * i)] for i in range(1, 9)]

    async def main() -> None:
        engine = await make_engine(HashBackend())
        answers = await asyncio.gather(*(collect(engine.submit(request(p, 10 + p[0]))) for p in prompts))
        assert answers == [expected_ids(p, 10 + p[0]) for p in prompts]
        assert engine.is_idle

    asyncio.run(main())


def test_stop_string_across_tokens_ends_the_text_before_it() -> None:
    whole = letters(expected_ids([4, 2], 20))
    stop = whole[7:10]

    async def main() -> None:
        engine = await make_engine(HashBackend())
        stream = engine.submit(request([4, 2], 20, reader=answer_text(stop)))
        events = [event async for event in stream]
        assert "".join(event.text for event in events) == stream.completion.text == whole[: whole.index(stop)]
        assert stream.completion.finish_reason == "stop"
        assert stream.completion.token_ids == expected_ids([4, 2], 10)

    asyncio.run(main())


def test_text_held_back_for_a_stop_string_is_emitted_at_the_end() -> None:
    whole = letters(expected_ids([4, 2], 5))

    async def main(eos_after: dict[int, int], max_tokens: int) -> None:
        engine = await make_engine(HashBackend(eos_after=eos_after))
        stream = engine.submit(request([4, 2], max_tokens, reader=answer_text(whole[4] + "never")))
        assert "".join([event.text async for event in stream]) == stream.completion.text == whole

    asyncio.run(main({}, 5))
    asyncio.run(main({4: 7}, 50))


@pytest.mark.parametrize("how", ["cancel", "aclose", "drop"])
def test_cancelling_stops_the_work_within_one_step(how: str) -> None:
    async def main() -> None:
        backend = HashBackend()
        engine = await make_engine(backend)
        stream: Stream | None = engine.submit(request([5], 50))
        assert stream is not None
        other = engine.submit(request([6], 12))
        for _ in range(3):
            await anext(stream)
        before = len(backend.steps)
        if how == "cancel":
            engine.cancel(stream.id)
            assert stream.completion.finish_reason == "cancelled"
            assert len(stream.completion.token_ids) >= 3
        elif how == "aclose":
            await stream.aclose()
        stream = None  # the last reference: cancels
        assert await collect(other) == expected_ids([6], 12)
        assert all(len(step.sequences) == 1 for step in backend.steps[before:]), "the dropped stream runs"
        assert engine.is_idle

    asyncio.run(main())


def test_stream_can_be_cancelled_before_its_first_step() -> None:
    async def main() -> None:
        backend = HashBackend()
        engine = await make_engine(backend)
        await engine.submit(request([5], 50)).aclose()
        assert engine.is_idle
        assert backend.steps == []
        assert not await engine.step()

    asyncio.run(main())


def test_task_cancelled_while_it_reads_does_not_disturb_others() -> None:
    async def main() -> None:
        engine = await make_engine(HashBackend())
        victim = asyncio.create_task(collect(engine.submit(request([5], 50))))
        other = asyncio.create_task(collect(engine.submit(request([6], 20))))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        victim.cancel()
        assert await other == expected_ids([6], 20)

    asyncio.run(main())


@pytest.mark.parametrize("where", ["run_faults", "read_faults"])
def test_failed_step_fails_its_requests_and_no_others(where: str) -> None:
    async def main() -> None:
        backend = HashBackend()
        setattr(backend, where, {1: BackendError("the device hiccupped, it says", backend="hash")})
        engine = await make_engine(backend, parallel=1)
        first, second = engine.submit(request([5], 6)), engine.submit(request([6], 6))
        with pytest.raises(BackendError, match="hiccupped"):
            await collect(first)
        assert first.completion.finish_reason == "error"
        assert await collect(second) == expected_ids([6], 6)
        assert engine.is_idle
        assert engine.counters.failed_steps == 1

    asyncio.run(main())


@pytest.mark.parametrize("where", ["run_faults", "read_faults"])
def test_failure_of_the_only_request_is_its_own_error(where: str) -> None:
    async def main() -> None:
        backend = HashBackend()
        setattr(backend, where, {0: BackendError("the device hiccupped, it says", backend="hash")})
        engine = await make_engine(backend)
        with pytest.raises(BackendError, match="hiccupped"):
            await collect(engine.submit(request([5], 6)))
        while await engine.step():
            pass
        assert engine.is_idle

    asyncio.run(main())


@pytest.mark.parametrize(("status", "words"), [("nan", "not a number"), ("zero", "all zero")])
def test_broken_logits_fail_only_their_own_request(status: str, words: str) -> None:
    async def main() -> None:
        engine = await make_engine(HashBackend(statuses={3: status}))
        bad, good = engine.submit(request([7], 9)), engine.submit(request([6], 9))
        seen: list[int | None] = []

        async def consume() -> None:
            async for event in bad:
                seen.append(event.token_id)  # noqa: PERF401 - a comprehension would lose them

        with pytest.raises(BackendError, match=words):
            await consume()
        assert seen == expected_ids([7], 2), "events before the fault were lost"
        assert await collect(good) == expected_ids([6], 9)
        assert engine.is_idle

    asyncio.run(main())


def test_id_outside_the_vocabulary_is_an_error() -> None:
    class Wild(HashBackend):
        def output(self, *args: Any) -> OutputRow:
            return OutputRow(token_id=VOCAB, status="ok", logit=0.0, log_sum_exp=0.0)

    async def main() -> None:
        engine = await make_engine(Wild())
        with pytest.raises(BackendError, match=f"sampled token {VOCAB} of {VOCAB}"):
            await collect(engine.submit(request([1])))
        await engine.step()  # the step that ran ahead
        assert engine.is_idle

    asyncio.run(main())


def test_a_detokenizer_error_ends_its_own_request() -> None:
    class Broken:
        stop_sequence: str | None = None

        def push(self, token_id: int) -> str:
            raise RequestError("this text cannot be made", field="x")

        def flush(self) -> str:
            return ""

        def take(self) -> tuple[()]:
            return ()

    async def main() -> None:
        engine = await make_engine(HashBackend())
        bad, good = (
            engine.submit(request([7], 9, reader=lambda: TextReader(Broken()))),
            engine.submit(request([6], 9)),
        )
        with pytest.raises(RequestError, match="cannot be made"):
            await collect(bad)
        assert await collect(good) == expected_ids([6], 9)
        assert engine.is_idle

    asyncio.run(main())


def test_answer_without_a_limit_ends_at_the_context_length() -> None:
    async def main() -> None:
        engine = await make_engine(HashBackend(), context=32)
        stream = engine.submit(request([1, 2], None))
        assert await collect(stream) == expected_ids([1, 2], 30)
        assert stream.completion.finish_reason == "length"

    asyncio.run(main())


def test_scarce_pages_make_requests_wait_and_never_fail() -> None:
    async def main() -> None:
        engine = await make_engine(HashBackend(), context=64, n_pages=8, parallel=3)
        assert engine.context == 32
        prompts = [[i, i + 1] for i in range(1, 7)]
        answers = await asyncio.gather(*(collect(engine.submit(request(p, 14))) for p in prompts))
        assert answers == [expected_ids(p, 14) for p in prompts]
        assert engine.is_idle

    asyncio.run(main())


def test_reading_the_completion_too_early_is_refused() -> None:
    async def main() -> None:
        engine = await make_engine(HashBackend())
        with pytest.raises(RequestError, match="has not finished"):
            _ = engine.submit(request([1])).completion

    asyncio.run(main())


async def storm(engine: StepEngine, draw: Random, n: int) -> tuple[int, int]:
    """Random requests, each checked, some cancelled at a random point; returns the count of complete and
    cancelled ones.
    """
    live: list[tuple[Stream, list[int], int, list[int]]] = []
    n_done = n_cancelled = 0
    for _ in range(n):
        prompt = [draw.randrange(1, VOCAB) for _ in range(draw.randrange(1, 30))]
        want = expected_ids(prompt, n_tokens := draw.randrange(1, 30))
        live.append((engine.submit(request(prompt, n_tokens)), want, draw.randrange(60), []))
        for _ in range(draw.randrange(8)):
            await engine.step()
        while len(live) > 5:
            stream, want, n_read, got = live.pop(draw.randrange(len(live)))
            async for event in stream:
                got.append(event.token_id or 0)
                if len(got) == n_read:
                    break
            engine.cancel(stream.id)
            assert got == want[: len(got)]
            n_done, n_cancelled = n_done + (got == want), n_cancelled + (got != want)
    for stream, want, _, _ in live:
        assert await collect(stream) == want
    return n_done, n_cancelled


@pytest.mark.parametrize("depth", share_of([2, 1, 4]))
def test_random_requests_and_cancellations_leak_nothing(depth: int) -> None:
    async def main() -> None:
        engine = await make_engine(HashBackend(depth=depth), n_pages=30, clock=ShortSteps())
        n_done, n_cancelled = await storm(engine, Random(depth), 500)
        assert n_done > 100
        assert n_cancelled > 50, "no request completed, or none was cancelled"
        while await engine.step():
            pass
        assert engine.is_idle
        assert engine.counters.max_in_flight == depth

    asyncio.run(main())
