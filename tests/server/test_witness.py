"""The witness log of a server: one record a choice, whatever its end, and each can be replayed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.support.witness import facts_of

import camelid
from camelid.errors import RequestError
from camelid.loading.options import LoadOptions
from camelid.requests.output_text import ChatPrompt
from camelid.server.http.keys import Key
from camelid.server.service.admission import Admission
from camelid.server.service.host import EngineHost
from camelid.server.service.job import Job
from camelid.server.service.service import Limits, Service
from camelid.server.witness import WitnessObserver, asked_prompt, is_chat
from camelid.witness.log import WitnessLog
from camelid.witness.replay import replay
from camelid.witness.verify import verify

LOAD: dict[str, Any] = {"backend": "cpu", "context": 256, "parallel": 4}
MESSAGES = [{"role": "user", "content": "What is 12 plus 30?"}]
HOT = {"temperature": 3.0, "top_k": 0, "min_p": 0.0, "top_p": 1.0}
KEY = Key("alice", b"secret")


@asynccontextmanager
async def service_with(log: WitnessLog) -> AsyncGenerator[Service, None]:
    host = await EngineHost.open("cria", LoadOptions.of(**LOAD))
    observer = WitnessObserver(log)
    service = Service("cria", host, Admission(8, 8), Limits(), (observer,))
    try:
        await observer.loaded(service)
        yield service
    finally:
        await service.close()


def job(number: int, prompt: Any, n: int = 1, **options: Any) -> Job:
    return Job(prompt=prompt, options=options, n=n, endpoint="/v1/test", request_id=f"req-{number}", key=KEY)


async def serve(path: Path, *jobs: Job) -> None:
    """Runs jobs side by side, with a log of content."""
    with WitnessLog.open(path, {}, with_content=True) as log:
        async with service_with(log) as service:
            started = [await service.start(each) for each in jobs]
            await asyncio.gather(*(each.completions() for each in started), return_exceptions=True)


def requests_of(path: Path) -> list[dict[str, Any]]:
    assert verify(path).is_closed
    return [facts for facts in facts_of(path) if facts["kind"] == "request"]


async def replayed(path: Path) -> list[str]:
    """The details of the replays that are not equal."""
    async with await camelid.aload("cria", **LOAD) as llm:
        verdicts = [await replay(llm, facts, {}) for facts in requests_of(path)]
    return [verdict.detail for verdict in verdicts if not verdict.is_equal]


def test_every_choice_is_recorded_and_comes_out_again(tmp_path: Path) -> None:
    jobs = [
        job(0, MESSAGES, n=3, max_tokens=20, seed=5, **HOT),
        job(1, "The llama", n=2, max_tokens=20, stop="e", seed=6, ignore_eos=True, **HOT),
        job(2, "A llama is", choice=["big", "shy"], max_tokens=9, seed=7),
        job(3, [5, 6, 7], max_tokens=9, temperature=0.0),
    ]
    asyncio.run(serve(path := tmp_path / "log", *jobs))
    found = requests_of(path)
    choices = sorted((facts["id"], facts["parameters"]["choice"]) for facts in found)
    assert choices == [
        *((f"req-{0}", i) for i in range(3)),
        ("req-1", 0),
        ("req-1", 1),
        ("req-2", 0),
        ("req-3", 0),
    ]
    assert len({facts["answer_sha256"] for facts in found if facts["id"] == "req-0"}) == 3
    assert {(facts["key"], facts["endpoint"]) for facts in found} == {("alice", "/v1/test")}
    by_id = {facts["id"]: facts for facts in found}
    assert by_id["req-1"]["parameters"]["stop"] == ["e"]
    assert by_id["req-2"]["content"]["constraint"] == {"choice": ["big", "shy"]}
    assert [by_id[f"req-{i}"]["content"]["prompt"] for i in range(4)] == [
        MESSAGES,
        "The llama",
        "A llama is",
        None,
    ]
    assert [by_id[f"req-{i}"]["parameters"]["is_chat"] for i in range(4)] == [True, False, False, False]
    assert asyncio.run(replayed(path)) == []


def test_the_model_is_stated_before_its_first_request(tmp_path: Path) -> None:
    asyncio.run(serve(path := tmp_path / "log", job(0, "A", max_tokens=1)))
    kinds = [facts["kind"] for facts in facts_of(path)]
    assert kinds == ["header", "models", "request", "close"]
    models = facts_of(path)[1]["models"]
    assert requests_of(path)[0]["model_sha256"] == models["cria"]["model_sha256"]


def test_a_client_that_leaves_is_recorded_with_what_it_received(tmp_path: Path) -> None:
    async def leave(path: Path) -> list[int]:
        received: list[int] = []
        with WitnessLog.open(path, {}, with_content=True) as log:
            async with service_with(log) as service:
                started = await service.start(
                    job(0, "The", n=2, max_tokens=200, ignore_eos=True, seed=1, **HOT)
                )
                async with aclosing(started.batches()) as batches:
                    async for batch in batches:
                        if batch.choice == 0:
                            received += [
                                event.token_id for event in batch.events if event.token_id is not None
                            ]
                        if len(received) > 5:
                            break
        return received

    received = asyncio.run(leave(path := tmp_path / "log"))
    found = {facts["parameters"]["choice"]: facts for facts in requests_of(path)}
    assert [found[i]["finish_reason"] for i in range(2)] == ["cancelled"] * 2
    assert found[0]["content"]["answer_ids"] == received
    assert found[0]["usage"]["completion_tokens"] == len(received)
    assert found[0]["timings"]["total_s"] > 0
    del found[1]
    assert asyncio.run(replay_one(found[0])) is True


async def replay_one(facts: dict[str, Any]) -> bool | None:
    async with await camelid.aload("cria", **LOAD) as llm:
        return (await replay(llm, facts, {})).is_equal


def test_a_timeout_and_an_error_are_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(path: Path) -> None:
        with WitnessLog.open(path, {}) as log:
            async with service_with(log) as service:
                late = await service.start(job(0, "A", max_tokens=200, ignore_eos=True, timeout_s=1e-6))
                await asyncio.gather(late.completions(), return_exceptions=True)

                async def fail_step() -> bool:
                    raise RequestError("the engine refuses: secret text", field="prompt")

                monkeypatch.setattr(service.host.running.engine, "step", fail_step)
                failed = await service.start(job(1, "secret text"))
                with pytest.raises(RequestError):
                    await failed.completions()

    asyncio.run(fail(path := tmp_path / "log"))
    late, failed = requests_of(path)
    assert (late["finish_reason"], late["error"]) == ("timeout", None)
    assert (failed["finish_reason"], failed["error"]) == ("error", "RequestError")
    assert "secret" not in path.read_text()


@pytest.mark.parametrize(
    ("prompt", "chat", "asked"),
    [
        ("text", False, "text"),
        ([1, 2], False, None),
        (MESSAGES, True, MESSAGES),
        (ChatPrompt([1], lambda stops: None), True, None),  # type: ignore[arg-type]  # no answer is read
    ],
)
def test_the_kind_of_a_prompt(prompt: Any, chat: bool, asked: Any) -> None:
    assert (is_chat(prompt), asked_prompt(prompt)) == (chat, asked)
