"""OpenAI's own client, unchanged: calls, helpers, errors and retries; and every field that it can send."""

from __future__ import annotations

import asyncio
import inspect
import json
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any, get_type_hints

import openai
import pytest
from openai.resources import Completions as TextCompletions
from openai.resources import Embeddings
from openai.resources.chat.completions import Completions as ChatCompletions
from openai.resources.responses import Responses
from openai.resources.responses.input_tokens import InputTokens
from openai.types.chat import ChatCompletionStreamOptionsParam
from openai.types.responses.response_create_params import StreamOptions
from pydantic import BaseModel
from tests.support.served_here import ServedHere, served_here

import camelid
from camelid.api.llm import LLM
from camelid.server.fields.embeddings import EMBEDDINGS
from camelid.server.fields.kinds import Object
from camelid.server.fields.openai import CHAT, STREAM_OPTIONS, TEXT
from camelid.server.fields.responses import INPUT_TOKENS, RESPONSES
from camelid.server.fields.table import Table
from camelid.server.http.keys import Key, KeyRing, digest_of, plain_keys

ASK: list[Any] = [{"role": "user", "content": "What is 12 plus 30?"}]
ADD: Any = {
    "type": "function",
    "function": {
        "name": "add",
        "description": "Adds two numbers",
        "parameters": {
            "type": "object",
            "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
            "required": ["a", "b"],
        },
    },
}
# Parameters of the client itself, which it does not send as fields.
CLIENT = {"self", "extra_headers", "extra_query", "extra_body", "timeout"}
SPENT = Key("spent", digest_of("spent"), requests_per_minute=1)
KEYS = KeyRing([*plain_keys(["one", "two"]), SPENT])


@pytest.fixture(scope="module")
def served() -> Iterator[ServedHere]:
    with served_here(keys=KEYS, is_strict=True, parallel=2, max_queue=1) as running:
        yield running


@pytest.fixture(scope="module")
def client(served: ServedHere) -> Iterator[openai.OpenAI]:
    with client_of(served) as made:
        yield made


@pytest.fixture(scope="module")
def llm() -> Iterator[LLM]:
    with camelid.load("cria", backend="cpu") as loaded:
        yield loaded


def client_of(served: ServedHere, key: str = "one", retries: int = 0) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"http://127.0.0.1:{served.port}/v1", api_key=key, max_retries=retries)


class Sum(BaseModel):
    left: int
    right: int


def test_chat_and_its_stream(client: openai.OpenAI, llm: LLM) -> None:
    wanted = llm.chat(ASK, temperature=0.0).text
    whole = client.chat.completions.create(model="cria", messages=ASK, temperature=0)
    assert whole.choices[0].message.content == wanted
    with client.chat.completions.stream(model="cria", messages=ASK, temperature=0) as stream:
        deltas = [event.delta for event in stream if event.type == "content.delta"]
        final = stream.get_final_completion()
    assert "".join(deltas) == final.choices[0].message.content == wanted
    assert final.choices[0].finish_reason == whole.choices[0].finish_reason == "stop"


def test_parse_returns_the_model(client: openai.OpenAI) -> None:
    found = client.chat.completions.parse(
        model="cria", messages=ASK, response_format=Sum, max_tokens=60, temperature=0
    )
    assert isinstance(found.choices[0].message.parsed, Sum)
    with pytest.raises(openai.LengthFinishReasonError):
        client.chat.completions.parse(model="cria", messages=ASK, response_format=Sum, max_tokens=2)


def test_a_streamed_tool_call_is_whole(client: openai.OpenAI) -> None:
    options: dict[str, Any] = {
        "model": "cria", "messages": ASK, "tools": [ADD], "tool_choice": "required", "temperature": 0
    }  # fmt: skip
    whole = client.chat.completions.create(**options)
    with client.chat.completions.stream(**options) as stream:
        done = [event for event in stream if event.type == "tool_calls.function.arguments.done"]
        final = stream.get_final_completion()
    assert whole.choices[0].message.tool_calls and final.choices[0].message.tool_calls
    (call,), (streamed,) = whole.choices[0].message.tool_calls, final.choices[0].message.tool_calls
    assert call.type == streamed.type == "function"
    assert call.function.arguments == streamed.function.arguments == done[0].arguments
    assert json.loads(call.function.arguments).keys() == {"a", "b"}
    assert final.choices[0].finish_reason == "tool_calls"


def test_text_completions(client: openai.OpenAI, llm: LLM) -> None:
    wanted = llm.generate("Once upon", temperature=0.0, max_tokens=8).text
    found = client.completions.create(
        model="cria", prompt="Once upon", temperature=0, max_tokens=8, logprobs=1
    )
    assert found.choices[0].text == wanted
    assert found.choices[0].logprobs is not None
    chunks = client.completions.create(
        model="cria", prompt="Once upon", temperature=0, max_tokens=8, stream=True
    )
    assert "".join(chunk.choices[0].text for chunk in chunks) == wanted


def test_models(client: openai.OpenAI) -> None:
    assert [model.id for model in client.models.list()] == ["cria"]
    assert client.models.retrieve("cria").object == "model"


def test_a_batch_of_clients_async(served: ServedHere) -> None:
    async def ask() -> str:
        url = f"http://127.0.0.1:{served.port}/v1"
        async with openai.AsyncOpenAI(base_url=url, api_key="one", max_retries=0) as made:
            stream = await made.chat.completions.create(
                model="cria", messages=ASK, temperature=0, stream=True
            )
            return "".join([chunk.choices[0].delta.content or "" async for chunk in stream])

    async def both() -> tuple[str, str]:
        return await asyncio.gather(ask(), ask())

    first, second = asyncio.run(both())
    assert first == second != ""


@pytest.mark.parametrize(
    ("error", "call"),
    [
        (openai.NotFoundError, lambda c: c.chat.completions.create(model="gpt-4", messages=ASK)),
        (openai.NotFoundError, lambda c: c.models.retrieve("gpt-4")),
        (openai.BadRequestError, lambda c: c.chat.completions.create(model="cria", messages=[])),
        (openai.BadRequestError, lambda c: c.chat.completions.create(model="cria", messages=ASK, store=True)),
        (openai.BadRequestError, lambda c: c.completions.create(model="cria", prompt="a", n=2, best_of=1)),
        (openai.AuthenticationError, lambda c: c.with_options(api_key="wrong").models.list()),
        (openai.InternalServerError, lambda c: c.embeddings.create(model="cria", input="a")),
    ],
)  # fmt: skip
def test_errors_are_the_clients_classes(
    client: openai.OpenAI, error: type[openai.APIStatusError], call: Callable[[openai.OpenAI], Any]
) -> None:
    with pytest.raises(error) as found:
        call(client)
    body = found.value.body
    assert isinstance(body, dict)
    assert body["message"]
    assert body["type"] == found.value.type
    assert found.value.request_id


def sleep_by(sleep: Callable[[float], object], monkeypatch: pytest.MonkeyPatch) -> None:
    """Replaces the pause of clients before they try again."""
    monkeypatch.setattr("openai._base_client.time", SimpleNamespace(sleep=sleep, time=time.time))


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The seconds that clients would have waited; they go on at once."""
    found: list[float] = []
    sleep_by(found.append, monkeypatch)
    return found


def test_embeddings_are_refused_once(served: ServedHere, waits: list[float]) -> None:
    with client_of(served, retries=2) as eager, pytest.raises(openai.InternalServerError) as found:
        eager.embeddings.create(model="cria", input=["a", "b"], dimensions=3)  # base64, the client's default
    assert found.value.status_code == 501
    assert waits == []


def test_a_spent_key_is_told_when_to_come_back(served: ServedHere, waits: list[float]) -> None:
    with client_of(served, "spent", retries=2) as eager:
        eager.completions.create(model="cria", prompt="a", max_tokens=1)
        with pytest.raises(openai.RateLimitError) as found:
            eager.completions.create(model="cria", prompt="a", max_tokens=1)
    assert len(waits) == 2
    assert all(wait == round(wait) and 50 <= wait <= 60 for wait in waits)
    assert found.value.response.headers["retry-after"] == f"{waits[-1]:g}"


def test_a_full_server_is_tried_again(served: ServedHere, monkeypatch: pytest.MonkeyPatch) -> None:
    """The retry waits as long as the server says, and succeeds once a place is free."""
    places = served.service.admission.enter(served.service.admission.capacity)
    waits: list[float] = []

    def wait(seconds: float) -> None:
        waits.append(seconds)
        places.leave()

    sleep_by(wait, monkeypatch)
    with client_of(served, retries=1) as eager:
        found = eager.completions.create(model="cria", prompt="a", max_tokens=1)
    assert found.choices[0].finish_reason == "length"
    assert len(waits) == 1
    assert 1 <= waits[0] == round(waits[0]) <= 60
    assert served.is_idle


def fields_of(method: Callable[..., Any]) -> set[str]:
    """The fields that a method of the client can send."""
    return {name for name in inspect.signature(method).parameters if name not in CLIENT}


@pytest.mark.parametrize(
    ("method", "table"),
    [
        (ChatCompletions.create, CHAT),
        (ChatCompletions.stream, CHAT),
        (TextCompletions.create, TEXT),
        (Responses.create, RESPONSES),
        (InputTokens.count, INPUT_TOKENS),
        (Embeddings.create, EMBEDDINGS),
    ],
    ids=["chat", "chat stream", "completions", "responses", "input tokens", "embeddings"],
)
def test_every_field_of_the_client_is_known(method: Callable[..., Any], table: Table) -> None:
    fields = fields_of(method)
    assert len(fields) > 3
    assert fields - {*table.fields, *table.refused} == set(), "honour the field or refuse it by name"
    assert not {*table.fields} & {*table.refused}


def test_every_stream_option_of_the_client_is_known() -> None:
    options = {
        ChatCompletionStreamOptionsParam: STREAM_OPTIONS,
        StreamOptions: RESPONSES.fields["stream_options"].kind,
    }
    for form, kind in options.items():
        assert isinstance(kind, Object)
        assert set(get_type_hints(form)) <= set(kind.fields or ())


@pytest.mark.parametrize(
    ("path", "table", "least"),
    [
        ("/v1/chat/completions", CHAT, {"messages": ASK}),
        ("/v1/completions", TEXT, {"prompt": "a"}),
        ("/v1/responses", RESPONSES, {"input": "a"}),
    ],
)
def test_a_refused_field_is_refused_by_name(
    served: ServedHere, path: str, table: Table, least: dict[str, Any]
) -> None:
    for name, row in table.refused.items():
        reply = served.http.post(
            path, json={**least, name: {"x": 1}}, headers={"authorization": "Bearer one"}
        )
        assert reply.status_code == row.status, name
        assert reply.json()["error"]["param"] == name
        for value in row.allowed:
            body = {**least, "stream": True, name: value}
            with served.http.stream(
                "POST", path, json=body, headers={"authorization": "Bearer one"}
            ) as allowed:
                assert allowed.status_code == 200, (name, value)
            served.wait_idle()
