"""Messages and tools of requests: valid ones pass, invalid ones are refused with their place."""

from __future__ import annotations

from typing import Any

import pytest

from camelid.errors import RequestError
from camelid.requests.messages import checked_messages, checked_tools

CALL = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": {"a": 1}}}


def user(content: object, **more: object) -> dict[str, object]:
    return {"role": "user", "content": content, **more}


@pytest.mark.parametrize(
    "message",
    [
        user("a"),
        user(""),
        user([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}], name="Ann"),
        {"role": "assistant", "content": None, "tool_calls": [CALL]},
        {"role": "assistant", "tool_calls": [CALL], "reasoning_content": "hm"},
        {"role": "tool", "content": "22", "tool_call_id": "c1", "name": "f"},
        {"role": "whoever", "content": "a", "thinking": None},
    ],
)
def test_valid_messages_pass_unchanged(message: dict[str, object]) -> None:
    assert checked_messages([message]) == [message]


def test_arguments_as_json_text_become_objects() -> None:
    """OpenAI's clients send text; templates print objects."""
    call = {"id": "x", "function": {"name": "f", "arguments": '{"a": [1, null]}'}}
    (made,) = checked_messages([{"role": "assistant", "tool_calls": [call]}])
    want = {"name": "f", "arguments": {"a": [1, None]}}
    assert made["tool_calls"] == [{"id": "x", "type": "function", "function": want}]


def calling(**function: object) -> dict[str, object]:
    return {"role": "assistant", "tool_calls": [{"function": function}]}


@pytest.mark.parametrize(
    ("message", "words"),
    [
        ("b", r"messages\[0\]: found 'b', expected {'role': ..., 'content': ...}"),
        ({"content": "a"}, "found no role"),
        ({"role": 1, "content": "a"}, r"messages\[0\].role: found [0-9]+, expected text"),
        ({"role": "user"}, "found no content, expected content, or tool_calls"),
        ({"role": "user", "content": None, "tool_calls": []}, "found no content"),
        (user(3), r"\.content: found [0-9]+"),
        (user("a", colour="red"), "found a field 'colour', expected only role, content"),
        (user([{"type": "audio", "audio": "a"}]), r"content\[0\]: found a part of type 'audio'"),
        (user([{"type": "image_url", "image_url": {}}]), r"image_url.url: found None, expected text"),
        (user([{"type": "image_url", "image_url": {"url": "http://a/b"}}]), "expected a data URI"),
        (user([{"type": "image_url", "image_url": {"url": "/etc/passwd"}}]), "expected a data URI"),
        (user([{"type": "image_url", "image_url": {"url": "data:image/png;base64,?"}}]), "invalid base64"),
        (user([{"type": "image", "image": 3}]), "expected a path, bytes, a data URI or a PIL image"),
        (user([{"type": "image", "image": "https://a/b.png"}]), "addresses are not fetched"),
        (user([{"type": "image"}]), "found the fields type, expected type and image"),
        (user([{"type": "text", "text": 1}]), r"content\[0\].text: found [0-9]+"),
        (user(["a"]), r"content\[0\]: found 'a', expected {'type': 'text'"),
        ({"role": "assistant", "tool_calls": "f"}, "tool_calls: found 'f', expected a list"),
        ({"role": "assistant", "tool_calls": [{}]}, r"tool_calls\[0\].function: found None"),
        (calling(name="f", arguments="{"), "arguments: found '{', expected the JSON text of an object"),
        (calling(name="f", arguments="[1]"), "arguments: found list, expected an object"),
        (calling(name="f", arguments="[" * 10**5), "expected the JSON text of an object"),
        (calling(arguments={}), "name: found None, expected text"),
        ({1: "a"}, "found dict"),
    ],
)
def test_malformed_messages_are_refused_with_their_place(message: Any, words: str) -> None:
    with pytest.raises(RequestError, match=words) as caught:
        checked_messages([message])
    assert caught.value.facts["field"] == "messages"
    assert len(str(caught.value)) < 400


def test_too_many_messages_are_refused() -> None:
    with pytest.raises(RequestError, match="found 100001 messages, expected at most 100000"):
        checked_messages([user("a")] * 100_001)


def test_valid_tools_pass_unchanged() -> None:
    tools = [{"type": "function", "function": {"name": "f", "parameters": {}}}]
    assert checked_tools(tools) == tools
    assert checked_tools(None) is None


@pytest.mark.parametrize(
    ("tools", "words"),
    [
        ("f", "tools: found 'f', expected a list"),
        ([{"type": "code"}], r"tools\[0\]: found type 'code', expected 'function'"),
        ([{"type": "function", "function": {}}], r"tools\[0\].function.name: found None"),
        ([lambda: 1], r"tools\[0\]: found function"),
    ],
)
def test_malformed_tools_are_refused(tools: object, words: str) -> None:
    with pytest.raises(RequestError, match=words):
        checked_tools(tools)
