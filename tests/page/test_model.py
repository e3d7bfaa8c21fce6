"""The calls of the page's worker on a native backend: answers, windows, cancellation, sessions, errors."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from tests.support.gguf_files import write_tiny_llama
from tests.support.random_adapters import random_adapter
from tests.support.served_adapters import write_gguf_adapter
from tests.support.tiny_encoders import write_encoder

import camelid
from camelid.loading.convert import convert
from camelid.loading.model_file import find_source
from camelid.page.answer import WINDOW
from camelid.page.model import PageModel, start

Json = dict[str, Any]
LONG = WINDOW + 40
GREEDY = {"temperature": 0.0, "max_tokens": 5, "ignore_eos": True}


@dataclass
class Client:
    """The messages that a client would get, by call."""

    model: PageModel = field(init=False)
    told: dict[int, list[Json]] = field(default_factory=dict)

    def post(self, text: str) -> None:
        message = json.loads(text)
        self.told.setdefault(message["id"], []).append(message)

    async def call(self, id: int, method: str, **given: Any) -> Any:
        """The result of a call; the error record if it failed."""
        await self.model.call(id, method, json.dumps(given))
        last = self.told[id][-1]
        return last.get("value", last.get("error"))

    def events(self, id: int) -> list[Json]:
        return [message["event"] for message in self.told.get(id, ()) if message["kind"] == "event"]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("model") / "tiny.gguf"
    write_tiny_llama(place, seed=3, hidden=64, head_dim=16, ffn=96, context=512)
    return place


def talk(path: Path, work: Callable[[Client], Awaitable[None]]) -> Client:
    """A client's visit to a loaded model."""
    client = Client()

    async def visit() -> None:
        model = await start(find_source(path), client.post, 0, json.dumps({"backend": "reference"}))
        assert model is not None, client.told
        client.model = model
        await work(client)

    asyncio.run(visit())
    return client


def test_adapters_of_a_page(path: Path, tmp_path: Path) -> None:
    """The answers of the library with the same adapters."""
    with camelid.load(path, backend="reference") as llm:
        adapter = random_adapter(llm, 1)
        gguf = write_gguf_adapter(tmp_path / "a.gguf", llm, adapter)
        llm.load_adapter(adapter, name="own")
        want = llm.generate("the llama", adapter="own", **GREEDY).token_ids
        base = llm.generate("the llama", **GREEDY).token_ids
    assert want != base

    async def work(client: Client) -> None:
        given = {"name": "own", "scale": 1.0, "applies": False, "config": ""}
        await client.model.call(1, "load_adapter", json.dumps(given), find_source(gguf))
        assert client.told[1][-1]["value"] == "own"
        done = await client.call(2, "generate", prompt="the llama", options=GREEDY | {"adapter": "own"})
        plain = await client.call(3, "generate", prompt="the llama", options=GREEDY)
        assert done["token_ids"] == want and plain["token_ids"] == base
        (shown,) = await client.call(4, "adapters")
        assert (shown["name"], shown["rank"], shown["applied"]) == ("own", 3, 0.0)
        assert await client.call(5, "unload_adapter", name="own") is None
        refused = await client.call(6, "generate", prompt="the llama", options={"adapter": "own"})
        assert refused["name"] == "RequestError" and "unknown" in refused["message"]
        await client.model.call(7, "load_adapter", json.dumps(given), find_source(path))
        assert "'adapter' is expected" in client.told[7][-1]["error"]["message"]
        broken = json.dumps(given | {"config": "{"})
        await client.model.call(8, "load_adapter", broken, find_source(gguf))
        assert client.told[8][-1]["error"]["name"] == "ModelFormatError"

    talk(path, work)


def test_an_answer_is_its_events(path: Path) -> None:
    async def work(client: Client) -> None:
        options = GREEDY | {"logprobs": 2}
        done = await client.call(1, "generate", prompt="the llama", options=options)
        events = client.events(1)
        assert "".join(event["text"] for event in events) == done["text"]
        assert [event["token_id"] for event in events] == done["token_ids"]
        assert [len(event["top_logprobs"]) for event in events] == [2] * 5
        assert (done["finish_reason"], done["usage"]["completion_tokens"]) == ("length", 5)
        ids = await client.call(2, "tokenize", text="the llama", special=False)
        assert await client.call(3, "detokenize", token_ids=ids) == "the llama"
        tokens = await client.call(4, "token_bytes", token_ids=ids)
        assert b"".join(map(bytes, tokens)) == b"the llama"
        assert await client.call(5, "count", prompt="the llama", options={}) == done["usage"]["prompt_tokens"]

    info = talk(path, work).told[0][-1]["value"]
    assert (info["backend"], info["context"], info["has_template"]) == ("reference", 512, True)


def test_a_reader_that_pauses_pauses_the_engine(path: Path) -> None:
    async def work(client: Client) -> None:
        options = GREEDY | {"max_tokens": LONG}
        answer = asyncio.create_task(client.call(1, "generate", prompt="the", options=options))
        async with asyncio.timeout(60):
            while len(client.events(1)) < WINDOW:
                await asyncio.sleep(0.01)
        await asyncio.sleep(0.2)  # of further events, which do not come
        assert len(client.events(1)) == WINDOW and not answer.done()
        client.model.read(1, LONG)
        assert len((await answer)["token_ids"]) == len(client.events(1)) == LONG

    talk(path, work)


@pytest.mark.parametrize("n_events", [0, 3, WINDOW])  # before the first token, while it runs, while it waits
def test_a_cancelled_answer_keeps_its_tokens(path: Path, n_events: int) -> None:
    async def work(client: Client) -> None:
        options = GREEDY | {"max_tokens": LONG}
        answer = asyncio.create_task(client.call(1, "generate", prompt="the", options=options))
        await asyncio.sleep(0)  # the call has begun
        while len(client.events(1)) < n_events:
            await asyncio.sleep(0)
        client.model.cancel(1)
        done = await answer
        assert done["finish_reason"] == "cancelled"
        assert n_events <= len(done["token_ids"]) == len(client.events(1)) <= n_events + 1
        assert (await client.call(2, "generate", prompt="the", options=GREEDY))["finish_reason"] == "length"

    talk(path, work)


def test_a_session_continues_forks_and_is_restored(path: Path, tmp_path: Path) -> None:
    async def work(client: Client) -> None:
        made = await client.call(1, "session", options=GREEDY, system="be kind", messages=[])
        assert [message["role"] for message in made["messages"]] == ["system"]
        first = await client.call(2, "turn", session=1, text="the llama", options={})
        assert [m["content"] for m in first["session"]["messages"]] == ["be kind", "the llama", first["text"]]
        await client.call(3, "fork", session=1)
        (tmp_path / "s").write_bytes(b"".join(await client.model.call(4, "save", '{"session": 1}')))
        assert 4 not in client.told, "the bytes of a file are sent by the worker"
        await client.model.call(5, "restore", "{}", find_source(tmp_path / "s"))
        turns = [await client.call(10 + i, "turn", session=i, text="and", options={}) for i in (1, 3, 5)]
        assert len({json.dumps(turn["token_ids"]) for turn in turns}) == 1
        assert turns[2]["session"]["options"]["max_tokens"] == 5
        await client.call(6, "reset", session=1)
        changed = await client.call(7, "change", session=1, changes={"system": None, "options": {"seed": 1}})
        assert (changed["messages"], changed["options"]) == ([], {"seed": 1})
        await client.call(8, "release", session=1)
        assert "closed" in (await client.call(9, "turn", session=1, text="and", options={}))["message"]

    talk(path, work)


@pytest.mark.parametrize(
    ("method", "given", "name", "field"),
    [
        ("generate", {"prompt": "the", "options": {"temperatur": 1}}, "RequestError", "temperatur"),
        ("generate", {"prompt": "the " * 600, "options": {}}, "ContextOverflowError", "prompt"),
        ("turn", {"session": 7, "text": "x", "options": {}}, "RequestError", "session"),
        ("embed", {"texts": ["x"]}, "RequestError", "model"),
        ("rerank", {"query": "x", "documents": ["x"]}, "RequestError", "model"),
    ],
)
def test_errors_are_pythons(path: Path, method: str, given: Json, name: str, field: str) -> None:
    async def work(client: Client) -> None:
        error = await client.call(1, method, **given)
        assert (error["name"], error["facts"].get("field")) == (name, field), error
        assert "detail" not in error and error["message"]

    talk(path, work)


def test_embeddings_are_the_librarys(tmp_path: Path) -> None:
    convert(write_encoder(tmp_path / "m"), tmp_path / "m.gguf")
    with camelid.load(str(tmp_path / "m.gguf"), backend="reference") as llm:
        want = llm.embed(["a b", "c"], dimensions=8)

    async def work(client: Client) -> None:
        assert await client.call(1, "embed", texts=["a b", "c"], options={"dimensions": 8}) == want
        assert len((await client.call(2, "embed", texts=["a"]))[0]) == 64

    talk(tmp_path / "m.gguf", work)


def test_a_model_that_cannot_be_loaded_is_an_error(tmp_path: Path) -> None:
    client = Client()
    (tmp_path / "bad.gguf").write_bytes(b"not a model at all")
    assert asyncio.run(start(find_source(tmp_path / "bad.gguf"), client.post, 0, "{}")) is None
    assert client.told[0][-1]["error"]["name"] == "ModelFormatError"
