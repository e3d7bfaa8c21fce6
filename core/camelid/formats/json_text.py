"""Strict parser of untrusted JSON: malformed, too deep, too large and ambiguous text raises ModelFormatError.

Stricter than `json.loads`: UTF-8 only, no repeated key, no NaN or Infinity, no lone surrogate, no number that
overflows. Grammar: RFC 8259; strictness: RFC 7493 (I-JSON).
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, NoReturn, TypeAlias, cast

from camelid.formats.source import format_error

JsonObject: TypeAlias = dict[str, Any]

MAX_DEPTH = 64  # of brackets; a tokenizer.json has about ten
MAX_VALUES = 5 << 20  # up to 130 bytes each in Python; the largest tokenizers have 2.4 million
MAX_DIGITS = 400  # transformers writes 10**30 for "no limit"; Python raises ValueError past 4300
BLOCK = 1 << 20  # bytes that `_structure` scans at once
ESCAPES = re.compile(rb"\\.", re.DOTALL)
BACKSLASHES = re.compile(rb"\\*+")
BETWEEN_VALUES = bytes(set(range(256)) - set(b"[]{},"))
STEPS = bytes.maketrans(b"[]{},", b"\1\xff\1\xff\0")  # a bracket -> its change of the depth
FLOAT, INFINITIES = "__float__", ("Infinity", "-Infinity", "NaN")
SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")


def parse_object(data: bytes, *, path: str, what: str, allow_infinity: bool = False) -> JsonObject:
    """Parses a JSON object. Raises ModelFormatError for any other text; the message names the text as `what`.

    `allow_infinity` reads NaN and Infinity as floats, as transformers writes them: by name, and since version
    5 in an object, {"__float__": "Infinity"}.
    """
    return _Parser(path, what, allow_infinity).parse(data)


def shown(value: object) -> str:
    """A value as errors show it: at most 60 characters."""
    if isinstance(value, list | dict):
        n = len(cast(list[object], value))
        if isinstance(value, dict) or n > 8:
            return f"{'an object' if isinstance(value, dict) else 'a list'} of {n}"
        text = f"[{', '.join(map(shown, cast(list[object], value)))}]"
    else:
        text = repr(value[:60] if isinstance(value, str) else value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _structure(data: bytes) -> Iterator[bytes]:
    """Yields the brackets and commas outside strings, block by block; exact up to the first JSON error."""
    start, in_string = 0, False
    while start < len(data):
        end = _block_end(data, start + BLOCK)
        parts = ESCAPES.sub(b"", data[start:end]).split(b'"')
        yield b"".join(parts[in_string::2]).translate(None, BETWEEN_VALUES)
        in_string ^= len(parts) % 2 == 0
        start = end


def _block_end(data: bytes, end: int) -> int:
    """`end`, moved past a run of backslashes around it and the character that they may escape."""
    match = BACKSLASHES.match(data, end) if data[end - 1 : end] == b"\\" else None
    return match.end() + 1 if match else end


@dataclass(frozen=True, slots=True)
class _Parser:
    path: str
    what: str
    allow_infinity: bool

    def fail(self, message: str) -> NoReturn:
        raise format_error(self.path, f"{self.what}: {message}", what=self.what)

    def parse(self, data: bytes) -> JsonObject:
        self.check_size(data)
        value = self.load(self.decode(data))
        found = cast(JsonObject, value)
        if not isinstance(value, dict):
            self.fail(f"a JSON object is expected, found {shown(value)}")
        if SURROGATE.search(data):
            self.check_surrogates(found)
        return found

    def check_size(self, data: bytes) -> None:
        """Checks depth and number of values, in linear time, before Python builds an object."""
        n = depth = 0
        for marks in _structure(data):
            n += len(marks)
            if n > MAX_VALUES:
                self.fail(f"it has more than {MAX_VALUES} brackets and commas")
            depths = list(accumulate(memoryview(marks.translate(STEPS)).cast("b"), initial=depth))
            if max(depths) > MAX_DEPTH:
                self.fail(f"its brackets nest deeper than {MAX_DEPTH}")
            depth = depths[-1]

    def decode(self, data: bytes) -> str:
        try:
            return data.decode("utf-8")
        except UnicodeDecodeError as error:
            self.fail(f"not valid UTF-8: byte {error.start} is {data[error.start]:#04x}")

    def load(self, text: str) -> object:
        try:
            return json.loads(
                text,
                object_pairs_hook=self.pairs,
                parse_int=self.integer,
                parse_float=self.number,
                parse_constant=self.constant,
            )
        except json.JSONDecodeError as error:
            self.fail(f"not valid JSON: {error.msg} at line {error.lineno}, column {error.colno}")

    def pairs(self, pairs: list[tuple[str, Any]]) -> JsonObject | float:
        if self.allow_infinity and len(pairs) == 1 and pairs[0][0] == FLOAT and pairs[0][1] in INFINITIES:
            return float(pairs[0][1])
        found = dict(pairs)
        if len(found) != len(pairs):
            key = Counter(key for key, _ in pairs).most_common(1)[0][0]
            self.fail(f"the key {key!r:.80} occurs twice in one object")
        return found

    def integer(self, text: str) -> float:
        self.check_digits(text)
        return -0.0 if text == "-0" else int(text)  # other readers do not accept -0 as a whole number

    def number(self, text: str) -> float:
        self.check_digits(text)
        value = float(text)
        if math.isinf(value):
            self.fail(f"the number {text:.40} is too large for a float")
        return value

    def check_digits(self, text: str) -> None:
        if len(text) > MAX_DIGITS:
            self.fail(f"a number of {len(text)} characters; at most {MAX_DIGITS} are allowed")

    def constant(self, text: str) -> float:
        if not self.allow_infinity:
            self.fail(f"{text} is not a JSON value")
        return float(text)

    def check_surrogates(self, value: object) -> None:
        try:
            json.dumps(value, ensure_ascii=False).encode("utf-8")
        except UnicodeEncodeError as error:
            self.fail(f"a string contains a lone surrogate: {error.object[error.start]!r}")
