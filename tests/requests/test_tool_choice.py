"""tool_choice and parallel_tool_calls, end to end with cria, the chat model of the package."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from tests.support.gguf_files import write_tiny_llama

import camelid
from camelid.api.llm import LLM
from camelid.errors import RequestError
from camelid.text.toolcalls.parts import CallArguments, CallEnd, CallStart

PARAMETERS: dict[str, Any] = {
    "add": {
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"enum": ["x", "y"]}, "c": {"type": "boolean"}},
        "required": ["a", "b"],
    },
    "get_price": {"type": "object", "properties": {"item": {"type": "string"}}, "required": ["item"]},
    "now": {"properties": {}, "additionalProperties": False},
}  # fmt: skip
TOOLS = [
    {"type": "function", "function": {"name": name, "parameters": schema}}
    for name, schema in PARAMETERS.items()
]
PRICE = [{"role": "user", "content": "What is the price of Rome?"}]
HELLO = [{"role": "user", "content": "Who are you?"}]
NAMED = {"type": "function", "function": {"name": "add"}}
WARM: dict[str, Any] = {"temperature": 1.5, "top_k": 0, "top_p": 1.0, "min_p": 0.0, "max_tokens": 400}


@pytest.fixture(scope="module")
def cria() -> Iterator[LLM]:
    with camelid.load("cria", backend="cpu", context=1024) as loaded:
        yield loaded


def check_calls(calls: Any) -> None:
    from jsonschema import validate  # takes 0.3 s: not at collection

    for call in calls:
        assert call.complete
        validate(json.loads(call.arguments), PARAMETERS[call.name])


@pytest.mark.parametrize("seed", range(12))
def test_a_demanded_call_is_complete_and_nothing_else(cria: LLM, seed: int) -> None:
    done = cria.chat(HELLO, tools=TOOLS, tool_choice="required", seed=seed, **WARM)
    if done.finish_reason == "length":  # calls without end are possible
        done = cria.chat(
            HELLO, tools=TOOLS, tool_choice="required", seed=seed, parallel_tool_calls=False, **WARM
        )
    assert (done.text, done.finish_reason) == ("", "tool_calls")
    assert done.tool_calls
    check_calls(done.tool_calls)


@pytest.mark.parametrize("seed", range(6))
def test_a_named_tool_is_called_once(cria: LLM, seed: int) -> None:
    options: dict[str, Any] = {"tool_choice": NAMED, "parallel_tool_calls": False}
    done = cria.chat(HELLO, tools=TOOLS, seed=seed, **options, **WARM)
    assert [call.name for call in done.tool_calls] == ["add"]
    check_calls(done.tool_calls)


@pytest.mark.parametrize("seed", range(6))
def test_streamed_arguments_join_to_json(cria: LLM, seed: int) -> None:
    stream = cria.stream(
        PRICE, tools=TOOLS, tool_choice="required", parallel_tool_calls=False, seed=seed, **WARM
    )
    parts = [part for event in stream for part in event.parts]
    assert [type(part) for part in parts if not isinstance(part, CallArguments)] == [CallStart, CallEnd]
    json.loads("".join(part.text for part in parts if isinstance(part, CallArguments)))


@pytest.mark.parametrize("seed", range(12))
def test_no_call_where_none_may_be_made(cria: LLM, seed: int) -> None:
    options = {**WARM, "max_tokens": 60}
    done = cria.chat(PRICE, tools=TOOLS, tool_choice="none", seed=seed, **options)
    assert not done.tool_calls
    assert "<tool_call>" not in cria.tokenizer.decode(done.token_ids, special=True)


@pytest.mark.parametrize("options", [{"tool_choice": "auto"}, {"parallel_tool_calls": False}], ids=str)
def test_the_model_chooses_and_its_calls_are_valid(cria: LLM, options: dict[str, Any]) -> None:
    before = cria.counters.guided_rows
    called = [cria.chat(PRICE, tools=TOOLS, seed=seed, **options, **WARM) for seed in range(12)]
    check_calls(call for done in called for call in done.tool_calls if done.finish_reason != "length")
    assert any(done.tool_calls for done in called)
    assert 0 < cria.counters.guided_rows - before < sum(len(done.token_ids) for done in called) / 2
    told = cria.chat(HELLO, tools=TOOLS, temperature=0, **options)
    assert (told.text, told.tool_calls) == (cria.chat(HELLO, tools=TOOLS, temperature=0).text, ())


def test_an_answer_without_a_choice_is_free(cria: LLM) -> None:
    before = cria.counters.hosted_rows
    cria.chat(PRICE, tools=TOOLS, temperature=0, parallel_tool_calls=True)
    cria.chat(PRICE, tool_choice="auto", temperature=0)
    assert cria.counters.hosted_rows == before


def test_a_session_demands_calls_too(cria: LLM) -> None:
    session = cria.session()
    done = session.generate("What is the price of Rome?", tools=TOOLS, tool_choice=NAMED, temperature=0)
    assert {call.name for call in done.tool_calls} == {"add"}
    assert session.messages[-1]["tool_calls"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"tool_choice": "required"}, "'required', but the request has no tools"),
        ({"tool_choice": "any", "tools": TOOLS}, "tool_choice is 'any', expected 'auto', 'none', 'requ"),
        ({"tool_choice": {"type": "function"}, "tools": TOOLS}, "tool_choice is .*, expected"),
        ({"tool_choice": NAMED}, "names the tool 'add', which is not among the tools: none"),
        (
            {"tool_choice": {"type": "function", "function": {"name": "sub"}}, "tools": TOOLS},
            "names the tool 'sub', which is not among the tools: add, get_price, now",
        ),
        ({"parallel_tool_calls": 1, "tools": TOOLS}, "parallel_tool_calls is 1, expected True or False"),
        (
            {"tool_choice": "required", "tools": TOOLS, "response_format": {"type": "json_object"}},
            "response_format and a tool_choice or parallel_tool_calls are set",
        ),
        ({"tool_choice": "auto", "tools": TOOLS, "regex": "a"}, "regex and a tool_choice .* are set"),
        ({"tool_choice": "required", "tools": TOOLS, "ignore_eos": True}, "ignore_eos continues past"),
        (
            {"tool_choice": "auto", "tools": [{"type": "function", "function": {"name": "a b"}}]},
            "tool_choice needs names of",
        ),
        (
            {
                "tool_choice": "auto",
                "tools": [{"type": "function", "function": {"name": "f", "parameters": {"if": {}}}}],
            },
            "tool 'f': .*'if' .*not supported",
        ),
    ],
)  # fmt: skip
def test_choices_that_cannot_hold_are_refused(cria: LLM, options: Any, words: str) -> None:
    with pytest.raises(RequestError, match=words):
        cria.chat(HELLO, **options)
    assert cria.is_idle


def test_a_text_has_no_choice(cria: LLM) -> None:
    with pytest.raises(RequestError, match="tool_choice applies to a chat template"):
        cria.generate("a", tool_choice="none")


def test_a_response_format_of_text_goes_with_a_choice(cria: LLM) -> None:
    done = cria.chat(HELLO, tools=TOOLS, tool_choice=NAMED, response_format={"type": "text"}, temperature=0)
    assert done.tool_calls


def test_a_template_without_calls_cannot_demand_one(tmp_path: Any) -> None:
    place = tmp_path / "plain.gguf"
    template = "{% for m in messages %}{{ m.content }}{% endfor %}{{ tools }}"
    write_tiny_llama(place, seed=5, context=1024, template=template)
    with camelid.load(place, backend="reference", context=1024) as llm:
        with pytest.raises(RequestError, match=r"no known format of calls \(family plain\)"):
            llm.chat(HELLO, tools=TOOLS, tool_choice="required")
        assert llm.chat(HELLO, tools=TOOLS, tool_choice="none", max_tokens=3).token_ids
