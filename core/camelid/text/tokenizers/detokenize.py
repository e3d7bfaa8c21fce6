"""From token ids to text while they come: whole characters only, and nothing of a stop string."""

from __future__ import annotations

from codecs import getincrementaldecoder
from collections.abc import Sequence
from typing import Protocol

from camelid.errors import RequestError


class TokenBytes(Protocol):
    """The part of a tokenizer that decoding needs."""

    def token_bytes(self, token_id: int) -> bytes: ...
    def opening_bytes(self, token_id: int) -> bytes: ...
    def is_control(self, token_id: int) -> bool: ...


class StreamDecoder:
    """Decodes token by token; the texts joined equal `tokenizer.decode` of all ids.

    At most 3 bytes are held back: the beginning of a character whose end is in the tokens to come. With
    `opens` false the ids go on with a text, and so keep a space that kinds like SentencePiece drop at the
    beginning of one.
    """

    def __init__(self, tokenizer: TokenBytes, *, special: bool = False, opens: bool = True) -> None:
        self._tokenizer = tokenizer
        self._special = special
        self._opens = opens
        self._decoder = getincrementaldecoder("utf-8")("replace")

    def push(self, token_id: int) -> str:
        """The text that this token completes, maybe none. Raises RequestError for an id out of range."""
        if not self._special and self._tokenizer.is_control(token_id):
            return ""
        piece = self._tokenizer.token_bytes(token_id)
        if self._opens and piece:
            piece, self._opens = self._tokenizer.opening_bytes(token_id), False
        return self._decoder.decode(piece)

    def finish(self) -> str:
        """What was held back: U+FFFD if the ids ended within a character."""
        return self._decoder.decode(b"", final=True)


class StopMatcher:
    """Cuts text at the first stop string, wherever the borders of tokens fall.

    The stop string that *ends* first wins, of those the longest, so that the result does not depend on
    how the text was cut. Knuth-Morris-Pratt: the work per character does not grow with the stops' length.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        if "" in stops:
            raise RequestError("a stop string is empty, which would stop at once; leave it out", field="stop")
        self._stops = list(dict.fromkeys(stops))
        self._failures = [failures(stop) for stop in self._stops]
        self._matched = [0] * len(self._stops)
        self._held = ""
        self._stopped = False

    def push(self, text: str) -> tuple[str, bool]:
        """The text that may be shown by now, and whether a stop string was found."""
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
        """What was held back in case a stop string would follow."""
        shown, self._held = self._held, ""
        return shown

    def _advance(self, char: str) -> int:
        """Feed one character to every stop; the length of the longest that it completes, else 0."""
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
