"""The comparison with llama-server sees what differs, and nothing else. It needs no llama-server."""

from __future__ import annotations

from typing import Any

import pytest
from tests.rivals.llama_server import Report, object_facts, stream_facts, value_of

BODY: dict[str, Any] = {
    "id": "a",
    "stop": True,
    "timings": {"prompt_n": 3, "prompt_ms": 1.5},
    "tokens": [1, 2],
}


def facts(body: Any) -> dict[str, Any]:
    return {fact: value_of(fact, value) for fact, value in object_facts(body, "").items()}


@pytest.mark.parametrize(
    ("change", "found"),
    [
        ({"id": "b"}, []),
        ({"timings": {"prompt_n": 3, "prompt_ms": 7}}, []),
        ({"id": 5}, ["id"]),
        ({"stop": False}, ["stop"]),
        ({"tokens": [1]}, ["tokens[]"]),
        ({"timings": {"prompt_n": 4, "prompt_ms": 1.5}}, ["timings.prompt_n"]),
        ({"timings": None}, ["timings"]),
        ({"more": {"deep": {"x": 1}}}, ["more"]),
    ],
)
def test_a_difference_is_told_once_at_its_place(change: Any, found: list[str]) -> None:
    report = Report()
    report.compare("case", facts(BODY), facts(BODY | change))
    assert [each.fact for each in report.found] == found


def test_the_order_of_a_streams_events_is_a_fact() -> None:
    role, end = '{"choices": [{"delta": {"role": "x"}}]}', '{"choices": [{"finish_reason": "stop"}]}'
    text = '{"choices": [{"delta": {"content": "y"}}]}'
    events = [f"data: {data}\n\n" for data in (role, text, text, end, "[DONE]")]
    assert stream_facts("".join(events))["stream"] == "role token final [DONE]"
    assert stream_facts("".join(events[1:]))["stream"] == "token final [DONE]"
