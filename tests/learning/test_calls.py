"""Approved calls against the schemas of their tools; jsonschema is the oracle where it is installed."""

from __future__ import annotations

import json
from random import Random
from typing import Any

import pytest

from camelid.errors import RequestError
from camelid.learning.calls import fault_of_calls
from camelid.learning.items import Exchange, Item, check_calls

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "town": {"type": "string", "enum": ["Porto", "Faro"]},
        "days": {"type": "integer"},
        "tags": {"type": "array", "items": {"type": ["string", "null"]}},
        "at": {"type": "object", "properties": {"x": {"type": "number"}}, "required": ["x"]},
    },
    "required": ["town"],
    "additionalProperties": False,
}
TOOLS = ({"type": "function", "function": {"name": "lunch", "parameters": SCHEMA}},)


def answer(arguments: Any, name: str = "lunch") -> dict[str, Any]:
    return {"role": "assistant", "tool_calls": [{"function": {"name": name, "arguments": arguments}}]}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ('{"town": "Porto"}', ""),
        ({"town": "Faro", "days": 2.0, "tags": ["a", None], "at": {"x": 1}}, ""),
        ('{"days": 1}', "lunch is called with arguments without 'town'"),
        ('{"town": "Rome"}', "arguments.town not one of Porto, Faro"),
        ('{"town": "Porto", "days": true}', "arguments.days not of type integer"),
        ('{"town": "Porto", "tags": [1]}', r"arguments.tags\[0\] not of type string or null"),
        ('{"town": "Porto", "at": {}}', "arguments.at without 'x'"),
        ('{"town": "Porto", "more": 1}', "arguments.more, which it does not have"),
        ("[]", "not of type object"),
        ("{", "no JSON"),
        ("[" * 100_000, "no JSON"),
    ],
)
def test_faults_are_named(arguments: Any, words: str) -> None:
    fault = fault_of_calls(answer(arguments), TOOLS)
    if words:
        with pytest.raises(RequestError, match=words):
            check_calls(Item(exchange=exchange(answer(arguments)), rating=1))
    assert bool(fault) == bool(words)


def test_other_tools_and_malformed_schemas() -> None:
    assert fault_of_calls(answer("{}", "dinner"), TOOLS) == "there is no tool 'dinner'"
    assert not fault_of_calls(answer("{}", "dinner"), ())
    odd = {"type": {}, "enum": 3, "required": "town", "properties": [], "items": 1}
    assert not fault_of_calls(answer('{"a": [1]}'), ({"function": {"name": "lunch", "parameters": odd}},))


def exchange(given: dict[str, Any]) -> Exchange:
    return Exchange(
        completion_id="c", messages=({"role": "user", "content": "q"},), answer=given, tools=TOOLS
    )


def test_a_wrong_call_is_never_the_right_answer() -> None:
    wrong, right = answer('{"days": 1}'), answer('{"town": "Porto"}')
    assert Item(exchange=exchange(wrong), rating=1).approved is None
    assert Item(exchange=exchange(right), rating=1).approved == right
    assert Item(exchange=exchange(wrong), rating=-1, correction=right).approved == right
    assert Item(exchange=exchange(right), rating=-1, correction=wrong).approved is None
    with pytest.raises(RequestError, match="correct the call"):
        check_calls(Item(exchange=exchange(right), rating=-1, correction=wrong))
    check_calls(Item(exchange=exchange(wrong), rating=-1))


def test_random_calls_are_judged_as_by_jsonschema() -> None:
    jsonschema = pytest.importorskip("jsonschema")
    rng = Random(27)
    values: list[Any] = [
        1,
        2.0,
        2.5,
        True,
        None,
        "Porto",
        "Rome",
        [],
        ["a", None],
        [3],
        {},
        {"x": 1},
        {"x": "1"},
    ]
    n_refused = 0
    for _ in range(2000):
        names = rng.sample(["town", "days", "tags", "at", "more"], rng.randrange(5))
        given = {
            name: "Porto" if name == "town" and rng.random() < 0.7 else rng.choice(values) for name in names
        }
        wanted = jsonschema.Draft202012Validator(SCHEMA).is_valid(given)
        assert (not fault_of_calls(answer(json.dumps(given)), TOOLS)) == wanted, given
        n_refused += not wanted
    assert 200 < n_refused < 1990
