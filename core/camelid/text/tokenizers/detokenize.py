"""Streaming from token ids to text: whole characters only, and no part of a stop string."""

from __future__ import annotations

from codecs import getincrementaldecoder
from collections.abc import Sequence
from typing import Protocol

from camelid.errors import RequestError


class TokenBytes(Protocol):
    """The part of a tokenizer that decoding uses."""

    def token_bytes(self, token_id: int) -> bytes: ...
    def opening_bytes(self, token_id: int) -> bytes: ...
    def is_control(self, token_id: int) -> bool: ...


class StreamDecoder:
    """Decodes token by token; the joined texts equal `tokenizer.decode` of all ids.

    The decoder holds back at most 3 bytes: the beginning of a character that later tokens complete. With
    `opens` False the ids continue a text, so a leading space is kept that kinds like SentencePiece drop at
    the beginning of a text.
    """

    def __init__(self, tokenizer: TokenBytes, *, special: bool = False, opens: bool = True) -> None:
        self._tokenizer = tokenizer
        self._special = special
        self._opens = opens
        self._decoder = getincrementaldecoder("utf-8")("replace")

    def push(self, token_id: int) -> str:
        """The text that this token completes, possibly empty. Raises RequestError for an id out of range."""
        if not self._special and self._tokenizer.is_control(token_id):
            return ""
        piece = self._tokenizer.token_bytes(token_id)
        if self._opens and piece:
            piece, self._opens = self._tokenizer.opening_bytes(token_id), False
        return self._decoder.decode(piece)

    def finish(self) -> str:
        """The rest of the text: U+FFFD if the ids ended within a character."""
        return self._decoder.decode(b"", final=True)


class StopMatcher:
    """Cuts text at the first stop string, independent of the borders of tokens.

    The stop string that *ends* first counts, the longest of those, so the result does not depend on how the
    text was cut. Knuth-Morris-Pratt: the work per character is independent of the length of the stop strings.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        if "" in stops:
            raise RequestError("a stop string is empty, which would stop at once; remove it", field="stop")
        self._stops = list(dict.fromkeys(stops))
        self._failures = [failures(stop) for stop in self._stops]
        self._matched = [0] * len(self._stops)
        self._held = ""
        self._stopped = False

    def push(self, text: str) -> tuple[str, bool]:
        """The text that is free of stop strings by now, and True if a stop string was found."""
        if self._stopped:
            return "", True
        self._held += text
        for end in range(len(self._held) - len(text), len(self._held)):
            length = self._advance(self._held[end])
            if length:
                shown, self._held, self._stopped = self._held[: end + 1 - length], "", True
                return shown, True
        border = len(self._held) - max(self._matched, default=0)
        shown, self._held = self._held[:border], self._held[border:]
        return shown, False

    def finish(self) -> str:
        """The text that was held back as the possible beginning of a stop string."""
        shown, self._held = self._held, ""
        return shown

    def _advance(self, char: str) -> int:
        """Advances every stop string by one character; returns the length of the longest match, or 0."""
        complete = 0
        for i, (stop, failure) in enumerate(zip(self._stops, self._failures, strict=True)):
            matched = self._matched[i]
            while matched and stop[matched] != char:
                matched = failure[matched - 1]
            self._matched[i] = matched = matched + (stop[matched] == char)
            if matched == len(stop):
                complete = max(complete, matched)
        return complete


def failures(stop: str) -> list[int]:
    """For each prefix of `stop`, the length of its longest proper prefix that is also its suffix."""
    table = [0] * len(stop)
    matched = 0
    for i in range(1, len(stop)):
        while matched and stop[matched] != stop[i]:
            matched = table[matched - 1]
        matched += stop[matched] == stop[i]
        table[i] = matched
    return table
