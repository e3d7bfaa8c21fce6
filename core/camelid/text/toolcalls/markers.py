"""Markers and free text as grammar expressions; a control token in a marker is one token, by id."""

from __future__ import annotations

import re
from collections.abc import Iterable

from camelid.text.grammar.builder import NOTHING, in_order, one_of
from camelid.text.grammar.char_classes import EVERY
from camelid.text.grammar.dfa import Dfa, dfa_of, trimmed
from camelid.text.grammar.rules import Chars, Expr, Repeat, Text, Tokens
from camelid.text.toolcalls.family import SPACE, Controls

ANY = Repeat(Chars(EVERY))


class Markers:
    """The spelling of markers in one vocabulary."""

    def __init__(self, controls: Controls) -> None:
        self._controls = controls
        names = sorted(controls, key=len, reverse=True)
        self._pattern = re.compile(f"({'|'.join(map(re.escape, names))})" if names else r"(?!)()")

    def expr(self, marker: str) -> Expr:
        """The marker: control tokens by id, the rest as text; empty where the marker cannot be written."""
        return in_order(*map(self._piece, self._pieces(marker))) if self.is_writable(marker) else NOTHING

    def is_writable(self, marker: str) -> bool:
        """True unless a token that ends the answer is in the marker."""
        return all(self._controls.get(piece, 0) is not None for piece in self._pieces(marker))

    def has_token(self, marker: str) -> bool:
        """True if a writable control token is in the marker, so that free text cannot contain it."""
        return self.is_writable(marker) and any(piece in self._controls for piece in self._pieces(marker))

    def _pieces(self, marker: str) -> list[str]:
        return [piece for piece in self._pattern.split(marker) if piece]

    def _piece(self, piece: str) -> Expr:
        token_id = self._controls.get(piece)
        return Text(piece) if token_id is None else Tokens(frozenset({token_id}))


def free_of(markers: Iterable[str]) -> Dfa:
    """Any text that contains none of the markers.

    Text spelled like a marker counts as the marker, since the parser reads text. A marker that is a plain
    word counts only before a bracket: `functools` is also a word of Python.
    """
    ends = dfa_of(in_order(ANY, one_of(*map(_seen, sorted(markers)))))
    rows = [[edge for edge in row if edge[2] not in ends.final] for row in ends.edges]
    return trimmed(rows, set(range(len(rows))) - ends.final)


def _seen(marker: str) -> Expr:
    spaces = Repeat(Chars(tuple((ord(char), ord(char)) for char in sorted(SPACE))))
    return in_order(marker, spaces, one_of(Text("["), Text("{"))) if marker.isalpha() else Text(marker)
