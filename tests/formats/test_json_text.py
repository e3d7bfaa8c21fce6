"""Untrusted JSON: accepted text parses like `json.loads`; the structural scan is exact."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.exhaustive import share_of

from camelid.errors import ModelFormatError
from camelid.formats import json_text
from camelid.formats.json_text import MAX_DEPTH, parse_object, shown

TEXTS = st.text(alphabet='a"\\[]{},:\n é🦙', max_size=12)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(TEXTS, inner, max_size=5),
    max_leaves=20,
)  # fmt: skip
OBJECTS = st.dictionaries(TEXTS, VALUES, max_size=5)


def parse(data: bytes) -> Any:
    return parse_object(data, path="x.json", what="settings")


def marks(text: str) -> str:
    """The structure of a text, one character at a time."""
    found, in_string, at = "", False, 0
    while at < len(text):
        if in_string and text[at] == "\\":
            at += 2
            continue
        if text[at] == '"':
            in_string = not in_string
        elif not in_string and text[at] in "[]{},":
            found += text[at]
        at += 1
    return found


@settings(derandomize=True, deadline=None)
@given(OBJECTS, st.booleans(), st.sampled_from([None, 2]))
def test_accepted_text_parses_like_json(value: Any, ascii_only: bool, indent: int | None) -> None:
    text = json.dumps(value, ensure_ascii=ascii_only, indent=indent)
    assert parse(text.encode()) == value == json.loads(text)


@pytest.mark.parametrize("block", share_of([1, 7, 1 << 20, *range(2, 7), 8], 3))
@settings(derandomize=True, deadline=None, max_examples=40)
@given(value=OBJECTS, ascii_only=st.booleans())
def test_structure_does_not_depend_on_blocks(block: int, value: Any, ascii_only: bool) -> None:
    text = json.dumps(value, ensure_ascii=ascii_only)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_text, "BLOCK", block)
        got = b"".join(json_text._structure(text.encode()))
    assert got.decode() == marks(text)


@pytest.mark.parametrize("block", [1, 7, 1 << 20])
def test_depth_is_exact(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_text, "BLOCK", block)
    deep = '{"]":' + "[" * (MAX_DEPTH - 1) + '"\\"]"' + "]" * (MAX_DEPTH - 1) + "}"
    assert list(parse(deep.encode())) == ["]"]
    with pytest.raises(ModelFormatError, match="its brackets nest deeper than 64"):
        parse(deep.replace('"\\"]"', '["\\"]"]').encode())


def test_strings_may_contain_any_number_of_brackets() -> None:
    text = "[" * 100_000 + '\\"' + "{," * 100_000
    assert parse(json.dumps({text: text}).encode()) == {text: text}


@pytest.mark.parametrize("text", ['{"a": NaN}', '{"a": [Infinity]}', '{"a": -Infinity}'])
def test_infinity_only_where_it_is_allowed(text: str) -> None:
    with pytest.raises(ModelFormatError, match="is not a JSON value"):
        parse(text.encode())
    parse_object(text.encode(), path="x.json", what="settings", allow_infinity=True)


SHOWN: list[tuple[Any, str]] = [
    (None, "None"),
    ("x", "'x'"),
    ("x" * 99, "'" + "x" * 56 + "..."),
    ([1, "a"], "[1, 'a']"),
    ([0] * 9, "a list of 9"),
    ({"a": 1}, "an object of 1"),
    ([[{}]], "[[an object of 0]]"),
    (10**300, "1" + "0" * 56 + "..."),
]


@pytest.mark.parametrize(("value", "text"), SHOWN)
def test_values_are_shortened_in_errors(value: Any, text: str) -> None:
    assert shown(value) == text
