"""Requests of Anthropic's dialect that are refused: field, status and type of the error."""

from __future__ import annotations

from typing import Any

import pytest
from tests.server.test_anthropic import ADD, ASK, PATH
from tests.support.processor_time import within
from tests.support.served import Served

from camelid.server.faces.anthropic_prompt import joined, system_messages

IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AA=="}}
BASH = {"type": "bash_20250124", "name": "bash"}


def said(*blocks: Any, role: str = "user") -> dict[str, Any]:
    return {"messages": [*ASK, {"role": role, "content": list(blocks)}]}


@pytest.mark.parametrize(
    ("change", "said_by"),
    [
        ({"max_tokens": 0}, "max_tokens"),
        ({"temperature": 1.5}, "temperature"),
        ({"messages": []}, "messages"),
        ({"container": "c"}, "container"),
        ({"mcp_servers": [{}]}, "mcp_servers"),
        ({"tools": [BASH]}, "bash_20250124"),
        ({"tools": [{**ADD, "input_examples": [{}]}]}, "input_examples"),
        ({"tool_choice": {"type": "any"}}, "tools is empty"),
        ({"tool_choice": {"type": "some"}}, "tool_choice.type"),
        ({"thinking": {"type": "enabled", "budget_tokens": 0}}, "budget_tokens"),
        ({"output_config": {"effort": "low"}}, "effort"),
        (said({"type": "image"}), "source"),
        (said({"type": "text", "text": None}), "has no 'text'"),
        (said({"type": "tool_use", "id": "a", "name": "b", "input": {}}), "type is 'tool_use'"),
        (said({"type": "text", "text": "I", "x": 1}), "unknown field 'x'"),
        (said({"type": "text", "text": "I "}, role="assistant"), "ends with whitespace"),
        (said({"type": "text", "text": ""}, role="assistant"), "or no text"),
        ({"messages": [{"role": "user", "content": "a " * 5000}]}, "1024"),
    ],
)
def test_a_bad_request_is_refused_by_name(server: Served, change: dict[str, Any], said_by: str) -> None:
    refused(server, change, 400, "invalid_request_error", said_by)


@pytest.mark.parametrize(
    ("change", "status", "kind", "said_by"),
    [
        (said(IMAGE), 501, "api_error", "image"),
        (said({"type": "document", "source": {"type": "text"}}), 501, "api_error", "document"),
    ],
)
def test_errors_have_anthropics_types(
    server: Served, change: dict[str, Any], status: int, kind: str, said_by: str
) -> None:
    refused(server, change, status, kind, said_by)


def refused(server: Served, change: dict[str, Any], status: int, kind: str, said_by: str) -> None:
    reply = server.post(PATH, {"messages": ASK, "max_tokens": 2, **change})
    assert reply.status_code == status, reply.text
    error = reply.json()
    assert (error["type"], error["error"]["type"]) == ("error", kind)
    assert said_by in error["error"]["message"]
    assert error["request_id"] == reply.headers["x-request-id"]


@pytest.mark.faults
def test_many_blocks_are_joined_in_linear_time() -> None:
    """Joining them two by two took 0.2 s for 1,000 blocks and 0.8 s for 2,000."""
    texts = [{"role": "user", "content": "x" * 900}] * 16_000
    with within(2):
        (message,) = joined(texts)
        assert system_messages([{"type": "text", "text": "\n" * 8_000_000}])
    assert message["content"] == "\n".join(text["content"] for text in texts)
