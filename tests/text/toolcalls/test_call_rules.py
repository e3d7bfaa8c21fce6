"""Grammars of tool calls: the parser reads back what they allow, in every family."""

from __future__ import annotations

import random
from typing import Any

import pytest
from tests.support.exhaustive import every, share_of
from tests.support.text.call_walks import (
    CALLING,
    SCHEMAS,
    TOOLS,
    CallWalker,
    check,
    controls_of,
    description,
    fault,
    ways_of,
)
from tests.support.text.toolcall_cases import JSON_WRITERS, TEXT_WRITERS

from camelid.errors import RequestError
from camelid.text.grammar.automaton import compile_rules
from camelid.text.grammar.matcher import Matcher
from camelid.text.toolcalls.call_rules import rules_of_calls
from camelid.text.toolcalls.families import FAMILIES

WALKS = (2, 60)
ARGUMENTS: dict[str, object] = {"city": "Zürich [x]", "days": 3, "exact": True, "options": {"a": "b"}}
WRITERS = {**JSON_WRITERS, **TEXT_WRITERS}
# Family -> what its writer writes and the grammar's spelling of it.
DIFFERENCES = {
    "mistral-json": {', "id": "abcdefgh0"': ""},  # an id behind the arguments is not read
    "lfm2": {"'": '"'},
    "solar": {"id0": "abcdefgh0"},
}


@pytest.mark.parametrize("n_walks", share_of(WALKS))
@pytest.mark.parametrize("name", every(10, CALLING))
def test_the_parser_reads_every_allowed_answer(name: str, n_walks: int) -> None:
    for has_controls in (True, False):
        walker = CallWalker(name, random.Random(name), has_controls=has_controls)
        ended = calls = 0
        for way in ways_of(walker.family):
            n_ended, n_calls = check(walker, way, n_walks)
            ended, calls = ended + n_ended, calls + n_calls
        assert ended > 2
        assert calls > 0


def accepts(name: str, text: str, *, has_controls: bool = True, **options: Any) -> bool:
    """True if the grammar allows the whole text; `has_controls`: its markers are control tokens."""
    walker = CallWalker(name, random.Random(0), has_controls=has_controls)
    matcher = Matcher(walker.automaton(**options), walker.table)
    names = {token: i for token, i in walker.controls.items() if i is not None}
    while text:
        found = next((token for token in names if text.startswith(token)), None)
        token_id = names[found] if found else walker.tokenizer.tokens.index(text[0].encode()[:1])
        if found is None and ord(text[0]) > 127:
            text = text.replace(text[0], "x")
            continue
        if not matcher.accept(token_id):
            return False
        text = text[len(found or text[0]) :]
    return matcher.is_complete


@pytest.mark.parametrize("name", every(2, [name for name in WRITERS if name in FAMILIES]))
def test_the_grammar_allows_what_templates_write(name: str) -> None:
    one = WRITERS[name]([("get_weather", ARGUMENTS)])
    for end in FAMILIES[name].ends:
        one = one.removesuffix(end)
    for written, ours in DIFFERENCES.get(name, {}).items():
        one = one.replace(written, ours)
    assert accepts(name, one), one
    assert accepts(name, one, choice="auto", parallel=False), one
    assert accepts(name, one, choice="none") == (name == "llama3"), (
        one
    )  # its JSON is text if no tool is known
    assert not accepts(name, one, tools={"now": None}), one


@pytest.mark.parametrize("name", ["qwen3-coder", "glm", "lfm2", "minimax-m2"])
@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ({"type": "array"}, "expected the schema of an object"),
        ({"anyOf": [{"required": ["a"]}]}, "'anyOf' beside the properties cannot be enforced"),
        ({"properties": {"a": {"contains": {}}}}, "tool 'f': .*contains.* not supported"),
        ({"properties": {'a</parameter>b(</arg_key>">': {}}}, "cannot write the argument"),
    ],
)
def test_schemas_that_a_family_cannot_write_are_refused(name: str, schema: Any, words: str) -> None:
    family = FAMILIES[name]
    with pytest.raises(RequestError, match=words):
        rules_of_calls(description(family, controls_of(family), tools={"f": schema}))


def test_a_call_as_a_whole_object_takes_every_keyword() -> None:
    family = FAMILIES["hermes"]
    schema = {"anyOf": [{"properties": {"a": {"type": "integer"}}, "required": ["a"]}, {"maxProperties": 0}]}
    compile_rules(rules_of_calls(description(family, {}, tools={"f": schema})))


def test_a_control_token_is_no_ordinary_text() -> None:
    """A marker that is a control token is written as that token, and only so."""
    walker = CallWalker("hermes", random.Random(0), has_controls=True)
    matcher = Matcher(walker.automaton(), walker.table)
    assert matcher.accept(walker.controls["<tool_call>"] or 0)
    spelled = Matcher(walker.automaton(), walker.table)
    assert not spelled.accept(walker.tokenizer.tokens.index(b"<"))


def test_an_opening_in_text_begins_a_call() -> None:
    for text in ("Use <tool_call> so", "<tool_call>x", 'a <tool_call>{"name": "other"'):
        assert not accepts("hermes", text, choice="auto")
        assert not accepts("hermes", text, choice="none")
    assert accepts("hermes", "a < b <tool b", choice="auto")
    assert accepts("functools", "import functools.partial", choice="auto")
    assert not accepts("functools", "functools[", choice="auto")


def test_functionary_names_its_recipient() -> None:
    for choice in ("auto", "none"):
        assert accepts("functionary-v3.2", "all\nHi", choice=choice)
        assert not accepts("functionary-v3.2", "Hi", choice=choice)
    assert accepts("functionary-v3.2", "all\nHi>>>now\n{}", choice="auto")
    assert not accepts("functionary-v3.2", "all\nHi>>>now\n{}", choice="none")


def test_thoughts_may_name_an_opening() -> None:
    thought = "<think>a <tool_cal> b</think>ok"
    assert accepts("hermes", thought, choice="auto")
    assert accepts("hermes", "so</think>ok", choice="none", in_reasoning=True)


def test_nothing_follows_calls() -> None:
    call = '<tool_call>{"name": "now", "arguments": {}}</tool_call>'
    assert accepts("hermes", call)
    assert accepts("hermes", f"{call}\n{call}")
    assert not accepts("hermes", f"{call}\n{call}", parallel=False)
    assert not accepts("hermes", f"{call}Done.", choice="auto")
    assert not accepts("hermes", "Well.")


def test_the_tools_of_these_tests_are_those_of_the_walks() -> None:
    assert [tool["function"]["name"] for tool in TOOLS] == list(SCHEMAS)


EDGES = [
    # Nothing in a tag contains the tag's end; in JSON, < is an escape.
    ("qwen3-coder", "options", '{"a": "\\u003c/parameter>"}', True),
    ("qwen3-coder", "options", '{"a": "</parameter>"}', False),
    ("qwen3-coder", "options", '{"a": "<b>"}', False),
    ("qwen3-coder", "tags", '["a\\u003cb"]', True),
    ("qwen3-coder", "tags", '["a<b"]', False),
    ("qwen3-coder", "code", "<<-123", True),
    ("qwen3-coder", "code", "<<-12", False),
    ("qwen3-coder", "short", "xy", True),
    ("qwen3-coder", "short", "x", False),
    ("qwen3-coder", "short", "x<", False),
    ("qwen3-coder", "unit", "f </", True),
    ("qwen3-coder", "unit", "</parameter>", False),
    ("qwen3-coder", "note", "null", True),
    ("qwen3-coder", "note", "ab", False),
    # Python has JSON's escapes except \/, and its own words.
    ("lfm2", "note", '"a\\ud83d\\ude00\\b"', True),
    ("lfm2", "note", '"a\\/b"', False),
    ("lfm2", "note", "None", True),
    ("lfm2", "exact", "True", True),
    ("lfm2", "exact", "true", False),
    # A string between markers is raw text.
    ("gemma4", "note", '<|"|>a "b" \\n\n<|"|>', True),
    ("gemma4", "note", '"ab"', False),
    ("gemma4", "options", '{a:<|"|>x <b><|"|>,x-y:{},two words:1}', False),
    ("gemma4", "options", '{a:<|"|>x <b><|"|>,x-y:{},<|"|>two words<|"|>:1}', True),
    ("gemma4", "options", '{a:<|"|>x <tool_call|><|"|>}', False),
]
FORMS = {
    "qwen3-coder": "<tool_call>\n<function=get_weather>\n<parameter=city>\nA\n</parameter>\n{before}"
    "<parameter={key}>\n{value}\n</parameter>\n{after}</function>\n</tool_call>",
    "lfm2": '<|tool_call_start|>[get_weather(city="A", {before}{key}={value}{after})]<|tool_call_end|>',
    "gemma4": '<|tool_call>call:get_weather{{city:<|"|>A<|"|>,{before}{key}:{value}{after}}}<tool_call|>',
}
DAYS = {
    "qwen3-coder": ("<parameter=days>\n3\n</parameter>\n",) * 2,
    "lfm2": ("days=3, ", ", days=3"),
    "gemma4": ("days:3,", ",days:3"),
}


@pytest.mark.parametrize(("name", "key", "value", "is_allowed"), EDGES)
def test_values_at_the_edge_of_a_notation(name: str, key: str, value: str, is_allowed: bool) -> None:
    is_early = key in {"code", "short", "unit"}  # declared before the days, which are required
    before, after = ("", DAYS[name][1]) if is_early else (DAYS[name][0], "")
    text = FORMS[name].format(key=key, value=value, before=before, after=after)
    assert accepts(name, text) == is_allowed, text
    assert accepts(name, text, has_controls=False) == is_allowed, text
    if is_allowed:
        walker = CallWalker(name, random.Random(0), has_controls=True)
        message = walker.parsed(text, tools=TOOLS, in_reasoning=False)
        assert fault(message, "required", parallel=False) is None
