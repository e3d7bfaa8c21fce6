"""Tool calls and reasoning in generated text: every family, every split, and malformed outputs."""

from __future__ import annotations

import itertools
import json
import random
import re
from collections.abc import Iterable, Iterator, Mapping
from posixpath import commonprefix

import pytest
from tests.support.exhaustive import share_of
from tests.support.processor_time import within
from tests.support.text.toolcall_cases import CASES, JSON_WRITERS, PLAIN, TEXT_WRITERS, TOOLS, WEATHER, Case

from camelid.errors import UnsupportedModelError
from camelid.text.toolcalls.families import FAMILIES
from camelid.text.toolcalls.feed import Feed, StringSet
from camelid.text.toolcalls.parser import parser_for
from camelid.text.toolcalls.parts import (
    CallArguments,
    CallEnd,
    CallStart,
    Content,
    Message,
    Part,
    Reasoning,
    gather,
)

WRITERS = {**JSON_WRITERS, **TEXT_WRITERS}
TWO = (("get_weather", WEATHER), ("now", {}))
SCENES = {
    "one call": ("", "", TWO[:1]),
    "one call without arguments": ("", "", TWO[1:]),
    "two calls": ("", "", TWO),
    "three calls, plain": ("", "", (("get_weather", PLAIN), ("now", {"days": 0}), ("other", PLAIN))),
    "text first": ("Let me see… {\"a\": [1]} <b> x", "", TWO),
    "thoughts first": ("", "So: {}\n\nthen [x] <y>", TWO),
    "thoughts and text first": ("Sure.", "Hm.", TWO[:1]),
    "no call": ("Just text: {}, [], <tool>.", "", ()),
}  # fmt: skip
Parts = list[Part]


def family_of(name: str) -> str:
    return "deepseek" if name == "deepseek-v3.1" else name


def parts_of(
    name: str, pieces: Iterable[str], *, tools: list[dict[str, object]] | None = None, starts: bool = False
) -> Parts:
    counter = itertools.count()
    parser = parser_for(
        family_of(name), tools=tools, starts_in_reasoning=starts, new_id=lambda: f"call{next(counter)}"
    )
    parts = [part for piece in pieces for part in parser.push(piece)]
    return parts + parser.finish()


def cuts(text: str, rng: random.Random, size: int) -> Iterator[str]:
    at = 0
    while at < len(text):
        end = at + rng.randrange(1, size)
        yield text[at:end]
        at = end


def merged(parts: Parts) -> Parts:
    """The parts with neighboring deltas joined, independent of the text's split."""
    joined: Parts = []
    for part in parts:
        last = joined[-1] if joined else None
        if isinstance(part, Content | Reasoning) and type(part) is type(last):
            joined[-1] = type(part)(last.text + part.text)  # type: ignore[union-attr]
        elif isinstance(part, CallArguments) and isinstance(last, CallArguments):
            joined[-1] = CallArguments(part.index, last.text + part.text)
        else:
            joined.append(part)
    return joined


def agreed(name: str, text: str, n_random: int = 4, **options: object) -> Parts:
    """The parts of the whole text, after checking that every other split gives the same."""
    whole = parts_of(name, [text], **options)  # type: ignore[arg-type]
    rng = random.Random(len(text))
    feeds = [list(text), *([*cuts(text, rng, 12)] for _ in range(n_random)), ["", text[:1], "", text[1:], ""]]
    for pieces in feeds:
        assert merged(parts_of(name, pieces, **options)) == merged(whole), (name, pieces)  # type: ignore[arg-type]
    return merged(whole)


def written(name: str, content: str, reasoning: str, calls: object) -> str:
    """A model's output in that family's syntax."""
    opening, closing = FAMILIES[family_of(name)].thinking or ("", "")
    if name == "gpt-oss":
        thoughts = f"<|channel|>analysis<|message|>{reasoning}<|end|><|start|>assistant" if reasoning else ""
        text = f"<|channel|>commentary<|message|>{content}<|end|>" + "<|start|>assistant" * bool(calls)
        text = text if content else ""
    else:
        thoughts = f"{opening}\n{reasoning}\n{closing}\n\n" if reasoning else ""
        text = {"functionary-v3.2": ">>>all\n"}.get(name, "") + content if content else ""
    return thoughts + text + (WRITERS[name](calls) if calls else "")  # type: ignore[arg-type]


@pytest.mark.parametrize("scene", SCENES)
@pytest.mark.parametrize("name", WRITERS)
def test_every_family_parses_its_calls_for_any_split(name: str, scene: str) -> None:
    content, reasoning, calls = SCENES[scene]
    if name == "llama3" and (content or reasoning) and calls:
        content, reasoning, calls = f"{content or reasoning}", "", ()  # text first: later JSON is text
    text = written(name, content, reasoning, calls)
    parts = agreed(name, text, tools=TOOLS if len(calls) < 3 else None)
    message = gather(parts)
    assert (message.content, message.reasoning) == (content, reasoning)
    assert [(call.name, json.loads(call.arguments)) for call in message.tool_calls] == [*map(tuple, calls)]
    assert all(call.complete for call in message.tool_calls)
    assert len({call.id for call in message.tool_calls} - {""}) == len(calls)


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.family}: {case.text[:40]}")
def test_text_without_a_call_is_unchanged(case: Case) -> None:
    parts = agreed(case.family, case.text, tools=TOOLS if case.tools else None, starts=case.starts)
    message = gather(parts)
    calls = tuple((call.name, "…" * (not call.complete) + call.arguments) for call in message.tool_calls)
    assert (message.content, message.reasoning, calls) == (case.content, case.reasoning, case.calls)


@pytest.mark.parametrize("name", WRITERS)
def test_arguments_are_streamed(name: str) -> None:
    """Each call starts once, then come its arguments, then its end; long strings are emitted before their
    end.
    """
    text = WRITERS[name]((("now", {"city": "x" * 500}), ("now", {"city": "y"})))
    parts = parts_of(name, text, tools=TOOLS)
    kinds = [(type(part), part.index) for part in merged(parts)]  # type: ignore[union-attr]
    assert kinds == [(kind, i) for i in (0, 1) for kind in (CallStart, CallArguments, CallEnd)]
    deltas = [part.text for part in parts if isinstance(part, CallArguments) and part.index == 0]
    # The syntax of two families is no JSON until a value's or the object's end.
    assert name in {"lfm2", "gemma4"} or max(map(len, deltas)) < 40


@pytest.mark.parametrize("step", share_of([4, 1]))
@pytest.mark.parametrize("name", WRITERS)
def test_a_truncated_text_keeps_its_parts(name: str, step: int) -> None:
    text = written(name, "", "", (("get_weather", PLAIN), ("now", {"days": 1})))
    full = gather(parts_of(name, [text], tools=TOOLS)).tool_calls
    longest = max(map(len, FAMILIES[family_of(name)].markers))
    for end in range(0, len(text), step):
        message = gather(agreed(name, text[:end], n_random=0, tools=TOOLS))
        for call, whole in zip(message.tool_calls, full, strict=False):
            common = len(commonprefix([whole.arguments, call.arguments]))
            loose = longest if name in TEXT_WRITERS and not call.complete else 0  # part of a closing tag
            assert call.name == whole.name and common >= len(call.arguments) - loose
            assert call.complete == (call.arguments == whole.arguments)
        if not message.tool_calls:
            assert skeleton(name, message.content) == skeleton(name, text[:end])


def skeleton(name: str, text: str) -> str:
    """The text without white space and droppable characters."""
    family = FAMILIES[family_of(name)]
    loose = (*family.dropped, *family.ends, *(family.thinking or ()), *(family.answer or ()))
    # gpt-oss headers consist of many markers and words; only their other characters are compared.
    special = {"gpt-oss": r"[A-Za-z0-9_.:/=<|> -]", "functionary-v3.2": "(>>>)?all"}.get(name, r"\s")
    pattern = re.compile("|".join((special, r"\s", *(re.escape(word.strip()) for word in loose if word))))
    while (shorter := pattern.sub("", text)) != text:  # the remaining text may form a marker
        text = shorter
    return text


def mutated(text: str, rng: random.Random, others: list[str]) -> str:
    for _ in range(rng.randrange(1, 4)):
        at, end = sorted(rng.choices(range(len(text) + 1), k=2))
        end = min(end, at + 30)
        text = rng.choice([
            text[:at] + text[end:], text[:at] + text[at:end] * 2 + text[end:],
            text[:at] + rng.choice(others) + text[at:],
            text[:at] + rng.choice('{}[]",:\\<>|\n0=()') + text[at + 1 :],
        ])  # fmt: skip
    return text


def is_subsequence(small: str, large: str) -> bool:
    rest = iter(large)
    return all(char in rest for char in small)


@pytest.mark.parametrize("n_outputs", share_of([40, 200]))
@pytest.mark.parametrize("name", WRITERS)
def test_malformed_outputs_raise_nothing_and_lose_nothing(name: str, n_outputs: int) -> None:
    rng = random.Random(name)
    markers = sorted(FAMILIES[family_of(name)].markers)
    seen: set[str] = set()
    for _ in range(n_outputs):
        scene = rng.choice(["two calls", "text first", "thoughts and text first", "three calls, plain"])
        text = mutated(written(name, *SCENES[scene]), rng, markers)
        parts = agreed(name, text, n_random=1, tools=rng.choice([None, TOOLS]))  # type: ignore[arg-type]
        message = gather(parts)
        for call in message.tool_calls:
            seen.add("complete" if call.complete else "cut")
            assert call.name and call.id
            assert not call.complete or isinstance(json.loads(call.arguments), Mapping)
        if name in JSON_WRITERS:
            made = [part for part in parts if not isinstance(part, CallArguments) or part.text != "{}"]
            assert is_subsequence(emitted(made), text)
        if not message.tool_calls:
            seen.add("text")
            assert skeleton(name, emitted(parts)) == skeleton(name, text)
    assert {"complete", "text" if name == "gemma4" else "cut"} <= seen  # gemma4 has no JSON to truncate


def emitted(parts: Parts) -> str:
    """All output, in order."""
    return "".join(getattr(part, "text", "") for part in parts)


def test_the_first_marker_wins_then_the_longest() -> None:
    rng = random.Random(47)
    for _ in range(2000):
        markers = ["".join(rng.choices("ab", k=rng.randrange(1, 5))) for _ in range(3)]
        text = "".join(rng.choices("abc", k=rng.randrange(12)))
        found = re.search("|".join(sorted(markers, key=len, reverse=True)), text)
        feed, before = Feed(), list[str]()
        reader = feed.until(StringSet(tuple(markers)), before.append)
        word: str | None = None
        for char in [*text, ""]:
            feed.push(char)
            feed.closed = not char
            try:
                next(reader)
            except StopIteration as stop:
                word = str(stop.value)
                break
        wanted = (text[: found.start()], found[0]) if found else (text, "")
        assert ("".join(before), word) == wanted, (markers, text)


def test_call_ids_are_the_models_or_nine_letters_and_digits() -> None:
    two = (("get_weather", PLAIN), ("now", {}))
    ids = [call.id for call in gather(parts_of("kimi-k2", [WRITERS["kimi-k2"](two)])).tool_calls]
    assert ids == ["functions.get_weather:0", "functions.now:1"]
    ids = [call.id for call in gather(parts_of("mistral", [WRITERS["mistral"](two)])).tool_calls]
    assert ids == ["abcdefgh0", "abcdefgh1"]
    twice = WRITERS["kimi-k2"]((two[0], two[0])).replace(":1", ":0")
    assert [call.id for call in gather(parts_of("kimi-k2", [twice])).tool_calls] == [
        "functions.get_weather:0",
        "call0",
    ]
    parser = parser_for("hermes")
    starts = [part for part in parser.push(WRITERS["hermes"](two)) if isinstance(part, CallStart)]
    assert all(re.fullmatch("[a-zA-Z0-9]{9}", start.id) for start in starts)
    assert starts[0].id != starts[1].id


def test_an_unknown_tool_is_a_call_after_a_marker() -> None:
    call = (("unknown", {"a": 1}),)
    for name in WRITERS.keys() - {"llama3"}:
        text = WRITERS[name](call)
        if name == "functionary-v3.2":
            text = "all\n" + text
        assert [call.name for call in gather(parts_of(name, [text], tools=TOOLS)).tool_calls] == ["unknown"]
    assert gather(parts_of("llama3", [WRITERS["llama3"](call)], tools=[])).tool_calls == ()


def test_finishing_twice_or_empty_returns_nothing() -> None:
    for family in FAMILIES.values():
        parser = parser_for(family, starts_in_reasoning=True)
        assert parser.finish() == parser.finish() == []
    assert gather([]) == Message("", "", ())


def test_an_unknown_family_is_named_with_the_known_ones() -> None:
    with pytest.raises(UnsupportedModelError, match=r"unknown family of tool calls 'gpt-9'; known: .*hermes"):
        parser_for("gpt-9")


HOSTILE = {
    "<": "<", "{": "{", "[": "[", "spaces": " ", "line breaks": "\n", "quotes": '"', "escapes": "'\\",
    "nested": '{"a":[', "openings": "", "heads": "", "keys": "",
}  # fmt: skip


@pytest.mark.parametrize("name", ["hermes", "gpt-oss", "glm", "lfm2", "llama3", "deepseek", "qwen3-coder"])
def test_hostile_text_takes_linear_time(name: str) -> None:
    family = FAMILIES[name]
    head = WRITERS[name]((("now", {"options": {"list": ["x"]}}),)).split("x")[0]
    with within(10):
        for text in HOSTILE.values():
            for prefix in ("", head, *family.openings):
                unit = text or head
                parts_of(name, [prefix + unit * (50_000 // len(unit))])


@pytest.mark.parametrize("unit", share_of(["<", '{"a":[', "<tool_call>", " "], 2))
def test_text_fed_by_characters_takes_linear_time(unit: str) -> None:
    with within(20):
        text = '<tool_call>{"name": "f", "arguments": ' + unit * (200_000 // len(unit))
        assert len(emitted(parts_of("hermes", text))) > 180_000
