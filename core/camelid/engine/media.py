"""Media of a prompt: rows whose embeddings come from a tower instead of the token table.

The rows of one image follow each other and have placeholder ids. They run in programs of their own (feature
`injected`), which receive the embeddings with the step, so that a step without images costs nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from struct import unpack
from typing import Any

FLOAT_BYTES = 4
KEY_BIT = 1 << 31  # set in the keys of media rows; no token id has it


@dataclass(frozen=True, slots=True, kw_only=True)
class Media:
    """The rows `start` to `end` of a prompt, as float32 [rows, cols] in `rows` (None: not encoded yet).

    `image` is what a tower encodes; the engine does not read it. `digest` identifies the content and the
    tower. `positions` are the channels of each row; without them a row's position is its number plus the
    `shift` of the media before it. Text after the media has a position of its number plus `shift`.
    """

    start: int
    end: int
    digest: bytes
    rows: memoryview | None = None
    image: Any = None
    positions: tuple[tuple[int, ...], ...] = ()
    shift: int = 0

    def part(self, start: int, end: int) -> memoryview:
        """The bytes of rows `start` to `end` of the prompt."""
        assert self.rows is not None, "an admitted request has encoded images"
        size = self.rows.nbytes // (self.end - self.start)
        return self.rows[(start - self.start) * size : (end - self.start) * size]

    def keys(self) -> Sequence[int]:
        """A key per row for the prefix cache, in place of a token id."""
        n = self.end - self.start
        words: list[int] = []
        for block in range(-(-n // 16)):
            digest = blake2b(self.digest + block.to_bytes(4, "little"), digest_size=64).digest()
            words += unpack("<16I", digest)
        return [KEY_BIT | word for word in words[:n]]


def media_at(media: Sequence[Media], row: int) -> Media | None:
    """The media of a prompt's row; None for a row of text."""
    return next((each for each in media if each.start <= row < each.end), None)


def rows_before_media(media: Sequence[Media], row: int) -> int | None:
    """Rows of text from `row` to the next media; None if no media follows."""
    return next((each.start - row for each in media if row < each.end), None)


def position_of(media: Sequence[Media], row: int) -> tuple[int, ...]:
    """The position channels of a row."""
    shift = 0
    for each in media:
        if row < each.start:
            break
        if row < each.end:
            return each.positions[row - each.start] if each.positions else (row + shift,)
        shift = each.shift
    return (row + shift,)


def with_keys(token_ids: Sequence[int], media: Sequence[Media]) -> Sequence[int]:
    """The ids by which the prefix cache finds rows: those of media have keys of their content."""
    if not media:
        return token_ids
    keyed = list(token_ids)
    for each in media:
        keyed[each.start : each.end] = each.keys()
    return keyed
