"""Conversations with tools: the template's input, and the calls and reasoning parsed from the answer.

The tiny model is random, so a choice of one text forces a trained model's output.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from tests.support.gguf_files import write_tiny_llama

import camelid
from camelid.api.llm import LLM
from camelid.errors import RequestError
from camelid.text.toolcalls.parts import CallArguments, CallStart, Content, Reasoning

TEMPLATE = (
    "{% if tools %}{{ '<|im_start|>tools ' }}{{ tools | tojson }}"
    "{{ '<tool_call>{name, arguments}</tool_call>' }}{% endif %}"
    "{% for m in messages %}{{ '<|im_start|>' + m.role + ' ' }}{{ m.content or '' }}"
    "{% for call in m.tool_calls or [] %}{{ call.function.name }}{{ call.function.arguments | tojson }}"
    "{% endfor %}{{ '<|im_end|>' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>' }}"
    "{% if enable_thinking is defined and not enable_thinking %}{{ '<think></think>' }}{% endif %}{% endif %}"
)
TOOLS = [{"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}]
CALL = '<tool_call>\n{"name": "add", "arguments": {"a": 12, "b": "30"}}\n</tool_call>'
USER = [{"role": "user", "content": "the sum"}]


@pytest.fixture(scope="module")
def llm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LLM]:
    place = tmp_path_factory.mktemp("model") / "tiny.gguf"
    write_tiny_llama(place, seed=5, hidden=64, head_dim=16, ffn=96, context=1024, template=TEMPLATE)
    with camelid.load(place, backend="reference", context=1024) as loaded:
        yield loaded


def test_calls_and_reasoning_are_not_text(llm: LLM) -> None:
    done = llm.chat(USER, tools=TOOLS, choice=[f"<think>hm</think>Well.{CALL}"])
    (call,) = done.tool_calls
    assert (done.text, done.reasoning, done.finish_reason) == ("Well.", "hm", "tool_calls")
    assert (call.name, json.loads(call.arguments), call.complete) == ("add", {"a": 12, "b": "30"}, True)


def test_a_stream_has_calls_and_reasoning_as_parts(llm: LLM) -> None:
    stream = llm.stream(USER, tools=TOOLS, choice=[f"<think>hm</think>Well.{CALL}"])
    events = list(stream)
    parts = [part for event in events for part in event.parts]
    assert "".join(event.text for event in events) == "Well."
    assert "".join(part.text for part in parts if isinstance(part, Content)) == "Well."
    assert "".join(part.text for part in parts if isinstance(part, Reasoning)) == "hm"
    assert [part.name for part in parts if isinstance(part, CallStart)] == ["add"]
    arguments = [part.text for part in parts if isinstance(part, CallArguments)]
    assert len(arguments) > 1, "the arguments arrived whole"
    assert json.loads("".join(arguments)) == {"a": 12, "b": "30"}


def test_a_plain_answer_stays_text(llm: LLM) -> None:
    done = llm.chat(USER, choice=["1 < 2 and {x}"])
    assert (done.text, done.reasoning, done.tool_calls) == ("1 < 2 and {x}", "", ())
    assert done.finish_reason == "stop"


def test_a_truncated_call_is_not_listed(llm: LLM) -> None:
    done = llm.chat(USER, tools=TOOLS, choice=[CALL], max_tokens=25)
    assert done.finish_reason == "length"
    assert not any(call.complete for call in done.tool_calls)
    broken = llm.chat(USER, tools=TOOLS, choice=['<tool_call>\n{"name": "add", "arguments": {"a": oops'])
    assert broken.finish_reason == "stop", "an incomplete call is listed"


def test_a_stop_string_ends_the_answer_before_a_call(llm: LLM) -> None:
    done = llm.chat(USER, choice=["<think>a b</think>one two three"], stop=" three")
    assert (done.text, done.reasoning) == ("one two", "a b")


def test_tools_and_their_results_reach_the_template(llm: LLM) -> None:
    function = {"name": "add", "arguments": '{"a": 1}'}
    messages: list[dict[str, Any]] = [
        *USER,
        {"role": "assistant", "content": None, "tool_calls": [{"id": "c", "function": function}]},
        {"role": "tool", "content": "3", "tool_call_id": "c"},
    ]
    text = llm.tokenizer.decode(llm.render(messages), special=True)
    assert 'add{"a": 1}<|im_end|><|im_start|>tool 3<|im_end|>' in text


def test_variables_reach_the_template(llm: LLM) -> None:
    done = llm.chat(USER, variables={"enable_thinking": False}, max_tokens=1)
    more = llm.chat(USER, max_tokens=1)
    assert done.usage.prompt_tokens > more.usage.prompt_tokens


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (
            {"variables": {"colour": 1}},
            "does not read the variable 'colour'; it reads: enable_thinking",
        ),
        ({"tools": "add"}, "tools: found 'add', expected a list"),
        ({"variables": {"bos_token": "<|im_start|>"}}, "bos_token"),
        ({"variables": {"messages": []}}, "messages"),
        ({"variables": "x"}, "variables is 'x', expected"),
    ],
)
def test_variables_that_the_template_lacks_are_refused(llm: LLM, options: Any, words: str) -> None:
    with pytest.raises(RequestError, match=words):
        llm.chat(USER, **options)


def test_text_has_no_tools(llm: LLM) -> None:
    with pytest.raises(RequestError, match="tools applies to a chat template"):
        llm.generate("the sum", tools=TOOLS)
