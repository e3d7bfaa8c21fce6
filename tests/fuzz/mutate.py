"""Ways to damage a file: each maps a random source and the bytes to changed bytes."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from random import Random
from typing import TypeAlias

Make: TypeAlias = Callable[[Random], bytes]
MAX_BYTES = 1 << 16  # hostile files are small; their declared sizes are not

NUMBERS = (
    0, 1, 2, 31, 32, 33, 63, 64, 0x7F, 0x80, 0xFF, 0xFFFF, 1 << 24, (1 << 30) + 1, (1 << 31) - 1, 1 << 31,
    (1 << 32) - 1, 1 << 32, 1 << 40, 1 << 61, 1 << 62, (1 << 63) - 1, 1 << 63, (1 << 64) - 32, (1 << 64) - 1,
)  # fmt: skip
GGUF_WORDS = (b"GGUF", b"general.alignment", b"general.architecture", b"\0" * 8, b"\xff" * 8, b"\xff", b"\n")
JSON_WORDS = (
    b"null", b"true", b"NaN", b"-Infinity", b"1e999", b"-1", b"-0", b"0", b"1", b"2", b"8", b"2.0", b"1e400",
    b"9" * 19, b"9" * 400, b"9" * 5000, b"[]", b"[", b"]", b"{", b"}", b",", b":", b"[[[[", b"[" * 99,
    b"[" * 5000, b"{" * 99, b'{"a":' * 70, b'""', b'"', b'"\\', b'"a"', b'"__metadata__"', b'"I8"', b'"F4"',
    b'"Q4"', b'"dtype"', b'"shape"', b'"data_offsets"', b'"weight_map"', b'"m1.safetensors"',
    b'"m2.safetensors"', b'"../m1.safetensors"', b'"/x"', b'"\\ud800"', b'"\\u0000"', b"\\ud83e\\udd99",
    b"\xff", b"\xef\xbb\xbf", b"\0", b" ",
)  # fmt: skip
BEFORE_VALUE, AFTER_VALUE, BEFORE_BLANK = (re.compile(rx) for rx in (rb"[:,\[]", rb"[,\]}]", rb"[:,\[{]"))


def flip(rng: Random, data: bytes) -> bytes:
    """Changes one byte."""
    at = rng.randrange(len(data))
    return data[:at] + bytes([rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)))]) + data[at + 1 :]


def number(rng: Random, data: bytes) -> bytes:
    """Overwrites bytes with a little-endian number."""
    size = rng.choice((1, 2, 4, 8))
    value = rng.choice(NUMBERS) + rng.choice((0, 0, 1, -1))
    at = rng.randrange(len(data))
    return data[:at] + (value & ((1 << 8 * size) - 1)).to_bytes(size, "little") + data[at + size :]


def cut(rng: Random, data: bytes) -> bytes:
    """Cuts the end off."""
    return data[: rng.randrange(len(data))]


def drop(rng: Random, data: bytes) -> bytes:
    """Removes a piece."""
    at = rng.randrange(len(data))
    return data[:at] + data[at + rng.randrange(1, 40) :]


def again(rng: Random, data: bytes) -> bytes:
    """Repeats a piece once or many times."""
    at = rng.randrange(len(data))
    piece = data[at : at + rng.randrange(1, 80)]
    return data[:at] + piece * rng.choice((1, 1, 2, 50)) + data[at:]


def word(words: Sequence[bytes]) -> Callable[[Random, bytes], bytes]:
    """Inserts a word of the format, over other bytes or between them."""

    def change(rng: Random, data: bytes) -> bytes:
        at = rng.randrange(len(data))
        return data[:at] + rng.choice(words) + data[at + rng.choice((0, 0, 1, 4)) :]

    return change


def token(words: Sequence[bytes]) -> Callable[[Random, bytes], bytes]:
    """Replaces a JSON value by another, so that the text often stays well-formed."""

    def change(rng: Random, data: bytes) -> bytes:
        at = rng.choice([found.end() for found in BEFORE_VALUE.finditer(data)] or [0])
        end = next((found.start() for found in AFTER_VALUE.finditer(data, at)), len(data))
        return data[:at] + rng.choice(words) + data[end:]

    return change


def blank(rng: Random, data: bytes) -> bytes:
    """Adds whitespace where JSON allows it, which should change nothing."""
    at = rng.choice([found.end() for found in BEFORE_BLANK.finditer(data)] or [0])
    return data[:at] + rng.choice((b" ", b"\n", b"\t \r\n", b" " * 5000)) + data[at:]


def damaged(
    seeds: Sequence[bytes],
    *,
    words: Sequence[bytes],
    text: bool = False,
    frame: Callable[[bytes], bytes] | None = None,
) -> Make:
    """Applies one to four changes to one of `seeds`; `frame` adds intact bytes around the result."""
    changes = [flip, number, cut, drop, again, word(words), word(words)]
    if text:
        changes = [flip, cut, drop, again, word(words), *[token(words)] * 4, *[blank] * 2]

    def make(rng: Random) -> bytes:
        data = rng.choice(seeds)
        for _ in range(rng.choice((1, 1, 2, 4))):
            data = rng.choice(changes)(rng, data or b"\0")[:MAX_BYTES]
        return frame(data) if frame else data

    return make
