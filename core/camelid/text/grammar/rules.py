"""The common form of all grammars: named rules over characters.

`gbnf`, `json_schema`, `regex` and `choice` make `Rules`; `automaton` compiles them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

Range: TypeAlias = tuple[int, int]
MAX_CODE_POINT = 0x10FFFF


@dataclass(frozen=True, slots=True)
class Text:
    """A literal text; the empty text matches the empty string only."""

    text: str


@dataclass(frozen=True, slots=True)
class Chars:
    """One character whose code point is in one of the ranges: ends included, sorted, disjoint."""

    ranges: tuple[Range, ...]


@dataclass(frozen=True, slots=True)
class Tokens:
    """One whole token of the vocabulary, by id; with `negated`, any token outside the set.

    For control tokens.
    """

    token_ids: frozenset[int]
    negated: bool = False


@dataclass(frozen=True, slots=True)
class Ref:
    """A reference to a rule by name."""

    name: str


@dataclass(frozen=True, slots=True)
class Sequence:
    """All parts in order; an empty sequence matches the empty string."""

    parts: tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class Choice:
    """Any one of the parts; an empty choice matches nothing at all."""

    parts: tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class Repeat:
    """`part` from `least` to `most` times; None: no maximum."""

    part: Expr
    least: int = 0
    most: int | None = None


Expr: TypeAlias = Text | Chars | Tokens | Ref | Sequence | Choice | Repeat


@dataclass(frozen=True, slots=True)
class Rules:
    """A grammar: its rules by name, and the name of the rule that a whole text follows."""

    rules: Mapping[str, Expr]
    root: str = "root"


def complement(ranges: tuple[Range, ...]) -> tuple[Range, ...]:
    """Every code point outside sorted, disjoint ranges, except surrogates, which are not characters."""
    found: list[Range] = []
    start = 0
    for first, last in sorted((*ranges, (0xD800, 0xDFFF))):
        if start < first:
            found.append((start, first - 1))
        start = max(start, last + 1)
    return (*found, (start, MAX_CODE_POINT)) if start <= MAX_CODE_POINT else tuple(found)
