"""A trie of strings by characters, which finds all tokens that begin at a position of a text.

A branch is expanded when a text first enters it, so that a vocabulary of any size is ready at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Generic, TypeVar

from camelid.errors import ModelFormatError

V = TypeVar("V")
# The limit of steps from each position of a text; the longest known token of these kinds has 32 characters.
MAX_PIECE = 256


class Branch(Generic[V]):
    """All strings with a common prefix, and the value of the string that equals the prefix, if any."""

    __slots__ = ("_depth", "_pieces", "_values", "children", "value")

    def __init__(self, values: Mapping[str, V], pieces: Iterable[str], depth: int = 0) -> None:
        self.children: dict[str, Branch[V]] = {}
        self.value: V | None = None
        self._values = values
        self._pieces = pieces
        self._depth = depth

    def spread(self) -> dict[str, Branch[V]]:
        """The branches by next character, made on the first call."""
        if self._pieces:
            groups: dict[str, list[str]] = {}
            for piece in self._pieces:
                groups.setdefault(piece[self._depth], []).append(piece)
            self.children = {char: self._branch(pieces) for char, pieces in groups.items()}
            self._pieces = ()
        return self.children

    def _branch(self, pieces: list[str]) -> Branch[V]:
        depth = self._depth + 1
        branch = Branch(self._values, [piece for piece in pieces if len(piece) > depth], depth)
        branch.value = self._values.get(pieces[0][:depth])
        return branch


def trie(values: Mapping[str, V]) -> Branch[V]:
    """The trie of all keys of `values`. Raises ModelFormatError for a key above MAX_PIECE characters."""
    longest = max(values, key=len, default="")
    if len(longest) > MAX_PIECE:
        raise ModelFormatError(
            f"tokenizer: the token {longest!r:.40} has {len(longest)} characters; "
            f"at most {MAX_PIECE} are supported",
            got=len(longest),
            limit=MAX_PIECE,
        )
    return Branch(values, [piece for piece in values if piece])
