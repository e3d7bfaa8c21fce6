"""The chat template: Camelid renders it as jinja2 does, with and without tools; hermes parses the calls."""

import json
from itertools import islice

import pytest

from camelid.text.templates.template import compile_template
from camelid.text.toolcalls.families import detect
from camelid.text.toolcalls.parser import parser_for
from camelid.text.toolcalls.parts import gather
from cria import conversations

tokenizer = pytest.importorskip("cria.tokenizer")

TALKS = list(islice(conversations.conversations("evaluator"), 300))
TOOL = {"type": "function", "function": {"name": "get_it", "description": "<b> & 'ü' \"", "parameters": {}}}
CALL = {
    "type": "function",
    "function": {"name": "get_it", "arguments": {"a": "é\"'<>&", "b": [1, None, 1.5]}},
}
ODD = {
    "no messages": ([], ()),
    "tools alone": ([{"role": "user", "content": "x"}], (TOOL, TOOL)),
    "system and tools": ([{"role": "system", "content": "s"}, {"role": "user", "content": "x"}], (TOOL,)),
    "system late": ([{"role": "user", "content": "x"}, {"role": "system", "content": "s"}], (TOOL,)),
    "no content": ([{"role": "assistant", "content": None, "tool_calls": [CALL, CALL]}], (TOOL,)),
    "content left out": ([{"role": "assistant", "tool_calls": [CALL]}], ()),
    "no calls": ([{"role": "assistant", "content": "a", "tool_calls": None}], ()),
    "text and a call": ([{"role": "assistant", "content": "a", "tool_calls": [CALL]}], ()),
    "a result": ([{"role": "tool", "content": '{"x": 1}'}], ()),
}  # fmt: skip


TEMPLATE = compile_template(tokenizer.CHAT_TEMPLATE)


def camelid_render(messages, tools):
    spans = TEMPLATE.render(messages, tools=list(tools) or None, add_generation_prompt=True)
    return "".join(text for text, _ in spans)


def jinja_render(messages, tools):
    return tokenizer.render(tokenizer.Talk(messages=messages, tools=tuple(tools)))


def test_conversations_of_the_stream():
    assert sum(bool(talk.tools) for talk in TALKS) > 20
    for talk in TALKS:
        assert camelid_render(talk.messages, talk.tools) == jinja_render(talk.messages, talk.tools)


@pytest.mark.parametrize("case", ODD)
def test_odd_conversations(case):
    assert camelid_render(*ODD[case]) == jinja_render(*ODD[case])


def test_without_tools_it_is_chatml():
    messages = [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}]
    want = "<|im_start|>system\ns<|im_end|>\n<|im_start|>user\nu<|im_end|>\n<|im_start|>assistant\n"
    assert camelid_render(messages, ()) == want


def test_tools_join_the_first_system_message_only():
    system, user = {"role": "system", "content": "s"}, {"role": "user", "content": "u"}
    tools = f"<tools>\n{json.dumps(TOOL['function'], ensure_ascii=False)}\n</tools><|im_end|>\n"
    asked = "<|im_start|>user\nu<|im_end|>\n"
    answer = "<|im_start|>assistant\n"
    assert camelid_render([system, user], (TOOL,)) == f"<|im_start|>system\ns\n{tools}{asked}{answer}"
    late = f"<|im_start|>system\n{tools}{asked}<|im_start|>system\ns<|im_end|>\n{answer}"
    assert camelid_render([user, system], (TOOL,)) == late


def test_a_rendered_call_is_parsed_back():
    family = detect(tokenizer.CHAT_TEMPLATE)
    assert (family.name, family.thinking) == ("hermes", None)
    function = CALL["function"]
    parser = parser_for(family, tools=(TOOL,))
    message = gather(
        [*parser.push(tokenizer.called(function["name"], function["arguments"])), *parser.finish()]
    )
    (call,) = message.tool_calls
    assert (call.name, json.loads(call.arguments), call.complete) == ("get_it", function["arguments"], True)
    assert message.content == ""
