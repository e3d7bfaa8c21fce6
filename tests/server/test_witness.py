"""The witness log of a server: one record a choice, whatever its end, and each can be replayed."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncGenerator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from tests.support.witness import facts_of

import camelid
from camelid.cli.main import main
from camelid.errors import RequestError
from camelid.loading.model_file import FileSource, find_source
from camelid.loading.options import LoadOptions
from camelid.requests.output_text import ChatPrompt
from camelid.server.http.keys import Key
from camelid.server.service.admission import Admission
from camelid.server.service.host import EngineHost
from camelid.server.service.job import Job
from camelid.server.service.limits import Limits
from camelid.server.service.models import Models
from camelid.server.service.rows import ModelRow
from camelid.server.service.service import Service
from camelid.server.witness import WitnessObserver, asked_prompt, is_chat
from camelid.witness.log import WitnessLog
from camelid.witness.replay import replay
from camelid.witness.verify import verify

LOAD: dict[str, Any] = {"backend": "cpu", "context": 256, "parallel": 4}
MESSAGES = [{"role": "user", "content": "What is 12 plus 30?"}]
HOT = {"temperature": 3.0, "top_k": 0, "min_p": 0.0, "top_p": 1.0}
KEY = Key("alice", b"secret")
ADD = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
TOOLS = [{"type": "function", "function": {"name": "add", "parameters": ADD}}]


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


def test_a_call_that_the_grammar_enforces_comes_out_again(tmp_path: Path) -> None:
    named = {"type": "function", "function": {"name": "add"}}
    jobs = [
        job(0, MESSAGES, n=2, max_tokens=24, seed=5, tools=TOOLS, tool_choice="required", **HOT),
        job(1, MESSAGES, max_tokens=24, seed=6, tools=TOOLS, tool_choice=named, parallel_tool_calls=False),
        job(2, MESSAGES, max_tokens=9, seed=7, tools=TOOLS, tool_choice="none", temperature=1.5),
        job(3, MESSAGES, max_tokens=9, seed=8, tools=TOOLS),
        job(4, MESSAGES, max_tokens=9, seed=9, response_format={"type": "text"}),
    ]
    asyncio.run(serve(path := tmp_path / "log", *jobs))
    found = {facts["id"]: facts for facts in requests_of(path)}
    for number, choice in enumerate(("required", "required", "none")):
        facts = found[f"req-{number}"]
        calls = facts["content"]["constraint"]["tool_calls"]
        assert (calls["choice"], calls["tools"], calls["parallel"]) == (choice, {"add": ADD}, number != 1)
        assert facts["constraint_sha256"]
    assert [found[f"req-{i}"]["constraint_sha256"] for i in (3, 4)] == [None, None]
    assert asyncio.run(replayed(path)) == []


def test_a_job_that_scores_its_prompt_is_not_computed_again(tmp_path: Path) -> None:
    scoring = Job(prompt="The llama", prompt_logprobs=1, request_id="req-0", key=KEY)
    asyncio.run(serve(path := tmp_path / "log", scoring))
    (facts,) = requests_of(path)
    assert (facts["parameters"]["scores_prompt"], facts["usage"]["completion_tokens"]) == (True, 0)
    assert asyncio.run(replayed(path)) == ["it scored its prompt and generated nothing"]
    assert asyncio.run(replay_one(facts)) is None


def changed_cria(path: Path) -> bytes:
    """Writes cria with another weight."""
    source = find_source("cria")
    assert isinstance(source, FileSource)
    data = bytearray(source.path.read_bytes())
    data[-1000] ^= 1
    path.write_bytes(data)
    return bytes(data)


def test_an_answer_under_way_keeps_its_model_when_the_file_is_replaced(tmp_path: Path) -> None:
    """And the log states both models, so that each answer is computed again on its own."""
    file, kept, path = tmp_path / "model.gguf", tmp_path / "kept.gguf", tmp_path / "log"
    data = {"old": changed_cria(file)}
    kept.write_bytes(data["old"])
    data["new"] = bytes(data["old"][:-1000]) + bytes([data["old"][-1000] ^ 2]) + data["old"][-999:]
    asked = {"max_tokens": 30, "ignore_eos": True, "seed": 1, **HOT}

    async def swap() -> None:
        with WitnessLog.open(path, {}, with_content=True) as log:
            observer = WitnessObserver(log)
            models = Models(
                {"m": ModelRow("m", str(file), LoadOptions.of(**LOAD))}, Limits(), observers=(observer,)
            )
            models.on_load.append(observer.loaded)
            old = await (await models.service("m")).start(job(0, "The", **asked))
            async with aclosing(old.batches()) as batches:
                await anext(batches)
                other = tmp_path / "other"
                other.write_bytes(data["new"])
                other.replace(file)
                assert await models.reload(models.find("m"))
                new = await (await models.service("m")).start(job(1, "The", **asked))
                await new.completions()
                async for _ in batches:
                    pass
            await models.close()

    asyncio.run(swap())
    found = {facts["id"]: facts["model_sha256"] for facts in requests_of(path)}
    assert found == {
        "req-1": hashlib.sha256(data["new"]).hexdigest(),
        "req-0": hashlib.sha256(data["old"]).hexdigest(),
    }
    assert list(found) == ["req-1", "req-0"], "the old answer ends after the new model's note"
    assert replay_lines(path) == {
        "req-1": "equal, 30 tokens",
        "req-0": "cannot be computed: its model cannot be loaded",
    }
    assert replay_lines(path, "--model", str(kept)) == {
        "req-1": "cannot be computed: its model cannot be loaded", "req-0": "equal, 30 tokens",
    }  # fmt: skip


def replay_lines(path: Path, *words: str) -> dict[str, str]:
    """The verdict of `camelid witness replay` by request id."""
    done = CliRunner().invoke(main, ["witness", "replay", str(path), *words])
    assert done.exit_code == 0, done.output
    lines = [line for line in done.stdout.splitlines() if line.startswith("record")]
    return {line.partition("(")[2].partition(")")[0]: line.partition(": ")[2] for line in lines}


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
                    job(0, "The", n=2, max_tokens=50_000, overflow="shift", ignore_eos=True, seed=1, **HOT)
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
                engine = service.host.running.engine
                step = engine.step

                async def slow_step() -> bool:
                    await asyncio.sleep(0.05)
                    return await step()

                async def fail_step() -> bool:
                    raise RequestError("the engine refuses: secret text", field="prompt")

                monkeypatch.setattr(engine, "step", slow_step)
                late = await service.start(job(0, "A", max_tokens=200, ignore_eos=True, timeout_s=2.0))
                await asyncio.gather(late.completions(), return_exceptions=True)
                monkeypatch.setattr(engine, "step", fail_step)
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
