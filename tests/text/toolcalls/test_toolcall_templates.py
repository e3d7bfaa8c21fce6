"""Families recognized from real templates, and calls rendered by these templates, parsed back."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.support.text.jinja_oracle import oracle_render
from tests.support.text.toolcall_cases import PLAIN, TOOLS, WEATHER

from camelid.text.toolcalls.families import FAMILIES, detect, opens_reasoning
from camelid.text.toolcalls.json_scanner import MAX_DEPTH, JsonScanner, is_json
from camelid.text.toolcalls.parser import parser_for
from camelid.text.toolcalls.parts import gather
from camelid.text.toolcalls.values import python_json, schema_types, typed_json

THINK = ("<think>", "</think>")
# Template in the shared material -> its family and reasoning markers.
FOUND = {
    "HuggingFaceTB-SmolLM3-3B": ("plain", THINK),
    "NousResearch-Hermes-3-Llama-3.1-8B-tool_use": ("hermes", None),
    "Qwen-Qwen2.5-7B-Instruct": ("hermes", None),
    "Qwen-Qwen3-0.6B": ("hermes", THINK),
    "deepseek-ai-DeepSeek-R1-Distill-Qwen-32B": ("deepseek", THINK),
    "google-gemma-2-2b-it": ("plain", None),
    "ibm-granite-granite-3.3-2B-Instruct": ("granite", THINK),
    "meta-llama-Llama-3.1-8B-Instruct": ("llama3", None),
    "meta-llama-Llama-3.2-3B-Instruct": ("llama3", None),
    "microsoft-Phi-3.5-mini-instruct": ("plain", None),
    "mistralai-Mistral-Nemo-Instruct-2407": ("mistral-json", None),
    "openai-gpt-oss-120b": ("gpt-oss", ("", "<|end|>")),
}


@pytest.mark.conformance
@pytest.mark.parametrize("name", FOUND)
def test_the_family_is_recognized_from_the_template(name: str, shared: Path) -> None:
    family = detect(template(shared, name))
    assert (family.name, family.thinking) == FOUND[name]


def template(shared: Path, name: str) -> str:
    path = shared / "data" / "templates" / f"{name}.jinja"
    if not path.exists():
        pytest.skip(f"shared material absent: no {path}")
    return path.read_text("utf-8")


def test_no_template_is_plain_and_every_row_has_its_own_signs() -> None:
    assert detect(None).name == detect("").name == detect("{{ messages }}").name == "plain"
    assert detect("").thinking is None
    for family in FAMILIES.values():
        assert detect(" ".join(family.signs)).name == family.name
    assert detect("[TOOL_CALLS] [ARGS] [/THINK]").thinking == ("[THINK]", "[/THINK]")


def test_markers_list_the_parsers_control_tokens() -> None:
    shown = {
        "hermes": "<tool_call> </tool_call> <think> </think>",
        "gpt-oss": "<|channel|> <|start|> <|message|> <|constrain|> <|call|> <|end|> <|return|>",
        "deepseek": "<｜tool▁calls▁begin｜> <｜tool▁call▁begin｜> <｜tool▁sep｜> <｜tool▁call▁end｜>",
        "mistral": "[TOOL_CALLS] [ARGS] [CALL_ID]",
        "llama3": "<|python_tag|> <|eom_id|>",
        "glm": "<tool_call> <arg_key> </arg_key> <arg_value> </arg_value> <|observation|>",
        "deepseek-dsml": "｜DSML｜",
        "gemma4": '<|tool_call> <tool_call|> <|"|> <|channel> <channel|>',
    }
    for name, tokens in shown.items():
        assert FAMILIES[name].shows(tokens.split(" ")) == set(tokens.split(" "))
        assert not FAMILIES[name].shows(["<|fim_prefix|>"])


@dataclass(frozen=True)
class Turn:
    calls: Sequence[tuple[str, Mapping[str, object]]]
    content: str = ""
    reasoning: str = ""

    def message(self, *, arguments_as_text: bool) -> dict[str, object]:
        calls = [
            {
                "id": f"abcdefgh{i}",
                "type": "function",
                "function": {
                    "name": name,
                    "arguments": json.dumps(arguments) if arguments_as_text else arguments,
                },
            }
            for i, (name, arguments) in enumerate(self.calls)
        ]
        thoughts = {"reasoning_content": self.reasoning, "thinking": self.reasoning} if self.reasoning else {}
        return {"role": "assistant", "content": self.content, **thoughts, "tool_calls": calls}


TURNS = {
    "one": Turn([("get_weather", WEATHER)]),
    "two": Turn([("get_weather", WEATHER), ("now", {})]),
    "plain": Turn([("get_weather", PLAIN)], reasoning="So it is."),
}
# Template -> turns that it can render in the model's syntax (one call at most, no reasoning, …).
TRIPS = {
    "NousResearch-Hermes-3-Llama-3.1-8B-tool_use": ("one", "two"),
    "Qwen-Qwen2.5-7B-Instruct": ("one", "two"),
    "Qwen-Qwen3-0.6B": ("one", "two", "plain"),
    "deepseek-ai-DeepSeek-R1-Distill-Qwen-32B": ("one", "two"),
    "meta-llama-Llama-3.1-8B-Instruct": ("one",),
    "meta-llama-Llama-3.2-3B-Instruct": ("one",),
    "mistralai-Mistral-Nemo-Instruct-2407": ("one", "two"),
    "openai-gpt-oss-120b": ("one", "plain"),
}


@pytest.mark.conformance
@pytest.mark.parametrize(("name", "turn"), [(name, turn) for name, turns in TRIPS.items() for turn in turns])
def test_rendered_calls_are_parsed_back(name: str, turn: str, shared: Path) -> None:
    source = template(shared, name)
    question: list[dict[str, object]] = [{"role": "user", "content": "Hi"}]
    options = {"tools": TOOLS, "bos_token": "", "eos_token": ""}
    answer = TURNS[turn].message(arguments_as_text=False)
    answer["content"] = None if "DeepSeek" in name else ""
    # The template's output before any answer.
    before = oracle_render(source, messages=question, add_generation_prompt=False, **options)
    full = oracle_render(source, messages=[*question, answer], add_generation_prompt=False, **options)
    assert full.startswith(before)
    text = full[len(before) :]
    for head in ("<|im_start|>assistant\n", "<｜Assistant｜>", "<|start|>assistant"):
        text = text.removeprefix(head)
    text = text.removeprefix("<|start_header_id|>assistant<|end_header_id|>\n\n")
    parser = parser_for(detect(source), tools=TOOLS)
    message = gather([part for char in text for part in parser.push(char)] + parser.finish())
    assert [(call.name, json.loads(call.arguments)) for call in message.tool_calls] == TURNS[turn].calls
    assert message.reasoning == TURNS[turn].reasoning
    assert message.content == ""


@pytest.mark.conformance
@pytest.mark.parametrize(
    ("name", "options", "opens"),
    [
        ("deepseek-ai-DeepSeek-R1-Distill-Qwen-32B", {"enable_thinking": True}, True),
        ("deepseek-ai-DeepSeek-R1-Distill-Qwen-32B", {}, False),
        ("Qwen-Qwen3-0.6B", {}, False),
        ("Qwen-Qwen3-0.6B", {"enable_thinking": False}, False),
        ("openai-gpt-oss-120b", {}, False),
        ("microsoft-Phi-3.5-mini-instruct", {}, False),
    ],
)
def test_a_prompt_that_ends_in_reasoning_is_recognized(
    name: str, options: dict[str, object], opens: bool, shared: Path
) -> None:
    source = template(shared, name)
    messages = [{"role": "user", "content": "What is <think>?"}]
    prompt = oracle_render(source, messages=messages, add_generation_prompt=True, bos_token="", **options)
    assert opens_reasoning(prompt[-40:], detect(source)) is opens


def strict_json(text: str) -> bool:
    """True if Python's json accepts the text, except NaN and infinities, which are no JSON."""

    def refuse(word: str) -> object:
        raise ValueError(word)

    try:
        json.loads(text, parse_constant=refuse, parse_int=str, parse_float=str)
    except ValueError:
        return False
    return True


def test_the_scanner_accepts_the_texts_of_json() -> None:
    rng = random.Random(41)
    seeds = [
        json.dumps(value)
        for value in (WEATHER, PLAIN, [], {}, "", -1.5e-7, [0, -0.0, 1e9, "\u2028\x7f"], None)
    ]
    alphabet = '{}[]",:\\ \t\n0123456789eE+-.truefalsnu/bA\x01é'
    taken = 0
    for _ in range(30_000):
        text = (
            rng.choice(seeds) if rng.random() < 0.5 else "".join(rng.choices(alphabet, k=rng.randrange(1, 7)))
        )
        for _ in range(rng.randrange(3)):
            at = rng.randrange(len(text) + 1)
            text = text[:at] + rng.choice(alphabet) + text[at + rng.randrange(2) :]
        wanted = strict_json(text) and not text.endswith((" ", "\n", "\t"))
        assert is_json(text) == wanted, text
        scanner = JsonScanner()
        for char in text:
            scanner.feed(char, 0)
        if wanted:
            assert scanner.end() and not scanner.broken
        taken += wanted
    assert 6_000 < taken < 24_000


def test_the_scanner_ends_with_the_value_and_limits_the_depth() -> None:
    for text, end in (('{"a": [1]} x', 10), ("12, 3", 2), ("true]", 4), ('"a"b', 3)):
        scanner = JsonScanner()
        assert (scanner.feed(text, 0), scanner.done, scanner.broken) == (end, True, False)
    assert is_json("[" * MAX_DEPTH + "]" * MAX_DEPTH)
    assert not is_json("[" * (MAX_DEPTH + 1) + "]" * (MAX_DEPTH + 1))


def test_python_literals_become_json() -> None:
    rng = random.Random(43)
    atoms: list[object] = [
        None,
        True,
        False,
        0,
        -7,
        2.5,
        "",
        "it's",
        'a "b"',
        "\n\t\\",
        "é😀\x7f\x01",
        "None",
        [],
    ]
    for _ in range(3000):
        value = rng.choice(atoms)
        for _ in range(rng.randrange(4)):
            value = (
                [value, rng.choice(atoms)] if rng.random() < 0.5 else {"k'": value, "True": rng.choice(atoms)}
            )
        text = python_json(repr(value))
        assert text is not None and json.loads(text) == value, repr(value)
    assert [python_json(text) for text in ("", "x", "(1,)", "{1: 2}", "'a", "1_0", "nan", "f()")] == [
        None
    ] * 8


@pytest.mark.parametrize(
    ("text", "schema", "value"),
    [
        ("3", {"type": "integer"}, 3),
        ("3", {"type": "number"}, 3),
        ("3", {"type": "string"}, "3"),
        ("3", {"type": ["string", "null"]}, "3"),
        ("null", {"type": ["string", "null"]}, None),
        ("3", {"type": ["string", "integer"]}, 3),
        ("3", {"anyOf": [{"type": "string"}, {"type": "boolean"}]}, "3"),
        ("3", {"enum": ["1", "3"]}, "3"),
        ("3", {"const": 3}, 3),
        ("3", {}, 3),
        ("3", None, 3),
        ("3", {"type": 7, "anyOf": 3, "enum": "x"}, 3),
        (" [1, {}] ", {"type": "array"}, [1, {}]),
        ("True", {"type": "boolean"}, True),
        ("three", {"type": "integer"}, "three"),
        ("NaN", {"type": "number"}, "NaN"),
        ("", {"type": "integer"}, ""),
        ('"x"', {}, "x"),
    ],
)
def test_a_value_in_tags_has_its_schemas_type(text: str, schema: object, value: object) -> None:
    assert json.loads(typed_json(text, schema_types(schema))) == value
