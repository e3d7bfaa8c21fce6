"""The parts of POST /v1/responses alone: reasoning, items to messages, the bounds of the store."""

from __future__ import annotations

from typing import Any

import pytest

from camelid.requests.output_text import Event
from camelid.server.faces.response_items import conversation_messages, input_items
from camelid.server.faces.response_output import Output
from camelid.server.http.errors import ApiError
from camelid.server.http.keys import ANONYMOUS, Key
from camelid.server.service.response_store import ResponseStore, StoredResponse
from camelid.text.toolcalls.parts import CallArguments, CallEnd, CallStart, Content, Part, Reasoning


def events_of(output: Output, *parts: Part, status: str = "completed") -> list[dict[str, Any]]:
    events = [change for part in parts for change in output.read(Event("", 1, 0.0, (part,)))]
    return [*events, *output.finish(status)]


def test_reasoning_is_an_item_of_its_own() -> None:
    output = Output()
    events = events_of(output, Reasoning("Let "), Reasoning("me."), Content("42"))
    reasoning, message = output.items
    assert reasoning["content"] == [{"type": "reasoning_text", "text": "Let me."}]
    assert (reasoning["type"], reasoning["summary"], reasoning["status"]) == ("reasoning", [], "completed")
    assert message["content"][0]["text"] == "42"
    assert output.n_reasoning == 2
    kinds = [event["type"].removeprefix("response.") for event in events]
    text = [
        "output_item.added",
        "content_part.added",
        "{}.delta",
        "{}.done",
        "content_part.done",
        "output_item.done",
    ]
    want = [kind.format("reasoning_text") for kind in text]
    want.insert(3, "reasoning_text.delta")
    assert kinds == [*want, *(kind.format("output_text") for kind in text)]


def test_calls_may_interleave() -> None:
    output = Output()
    events_of(
        output, CallStart(0, "a", "f"), CallStart(1, "b", "g"), CallArguments(1, "{}"),
        CallArguments(0, "[1"), CallEnd(1), CallArguments(0, "]"), CallEnd(0, complete=False), Content("x"),
    )  # fmt: skip
    assert [(item.get("arguments"), item["status"]) for item in output.items] == [
        ("[1]", "incomplete"), ("{}", "completed"), (None, "completed")
    ]  # fmt: skip


def test_an_empty_answer_is_an_empty_message() -> None:
    output = Output()
    events_of(output)
    assert output.items[0]["content"][0]["text"] == ""


def test_items_of_one_answer_make_one_message() -> None:
    items = input_items(
        [
            {"type": "message", "role": "developer", "content": "D"},
            {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "U"}]},
            {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "R"}]},
            {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "A"}]},
            {"type": "function_call", "call_id": "1", "name": "f", "arguments": "{}"},
            {"type": "function_call", "call_id": "2", "name": "g", "arguments": "{}"},
            {"type": "function_call", "call_id": "3", "name": "g", "arguments": "{", "status": "incomplete"},
            {"type": "function_call_output", "call_id": "1", "output": "O"},
            {"type": "reasoning", "summary": [{"type": "summary_text", "text": "S"}]},
            {"type": "message", "role": "assistant", "content": "B"},
            {"type": "message", "role": "assistant", "content": "C"},
        ]
    )
    assert len({item["id"] for item in items}) == len(items)

    def call(id: str, name: str) -> dict[str, Any]:
        return {"id": id, "type": "function", "function": {"name": name, "arguments": "{}"}}

    assert conversation_messages(items, "I") == [
        {"role": "system", "content": "I"},
        {"role": "system", "content": "D"},
        {"role": "user", "content": "U"},
        {
            "role": "assistant",
            "content": "A",
            "reasoning_content": "R",
            "tool_calls": [call("1", "f"), call("2", "g")],
        },
        {"role": "tool", "tool_call_id": "1", "content": "O"},
        {"role": "assistant", "content": "B", "reasoning_content": "S"},
        {"role": "assistant", "content": "C"},
    ]


def stored(id: str, text: str = "") -> StoredResponse:
    return StoredResponse({"id": id, "text": text}, [], [])


def test_the_store_drops_its_oldest() -> None:
    store = ResponseStore(max_responses=2, max_bytes=1000)
    for id in "abc":
        store.add(ANONYMOUS, stored(id))
    with pytest.raises(ApiError):
        store.find(ANONYMOUS, "a")
    assert store.find(ANONYMOUS, "c").body["id"] == "c"
    store.add(Key("other", b"x"), stored("d"))
    assert store.find(ANONYMOUS, "b").body["id"] == "b", "another key's response takes no place"
    store.add(ANONYMOUS, stored("e", "x" * 950))
    with pytest.raises(ApiError):
        store.find(ANONYMOUS, "c")
    store.add(ANONYMOUS, stored("f", "x" * 2000))
    for id in "ef":
        with pytest.raises(ApiError):
            store.find(ANONYMOUS, id)
    store.add(ANONYMOUS, stored("g"))
    store.remove(ANONYMOUS, "g")
    store.add(ANONYMOUS, stored("h", "x" * 900))
    assert store.find(ANONYMOUS, "h")
