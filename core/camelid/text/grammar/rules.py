"""What every grammar language is turned into: named rules over characters, bounded in size.

`gbnf`, `json_schema` and `regex` make `Rules`; `automaton` compiles them. Values only.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

Range: TypeAlias = tuple[int, int]
MAX_CODE_POINT = 0x10FFFF


@dataclass(frozen=True, slots=True)
class Text:
    """These characters, in this order; empty text matches nothing but the empty string."""

    text: str


@dataclass(frozen=True, slots=True)
class Chars:
    """One character whose code point lies in one of the ranges, both ends included, sorted, disjoint."""

    ranges: tuple[Range, ...]


@dataclass(frozen=True, slots=True)
class Tokens:
    """One whole token of the vocabulary, by id; with `negated`, any token but these. For control tokens."""

    token_ids: frozenset[int]
    negated: bool = False


@dataclass(frozen=True, slots=True)
class Ref:
    """The rule of this name."""

    name: str


@dataclass(frozen=True, slots=True)
class Sequence:
    """All parts, one after the other; no parts match the empty string."""

    parts: tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class Choice:
    """Any one of the parts; no parts match nothing at all."""

    parts: tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class Repeat:
    """`part` from `least` to `most` times; `most` None has no end."""

    part: Expr
    least: int = 0
    most: int | None = None


Expr: TypeAlias = Text | Chars | Tokens | Ref | Sequence | Choice | Repeat


@dataclass(frozen=True, slots=True)
class Rules:
    """A grammar: its rules by name, and the one that a whole answer follows."""

    rules: Mapping[str, Expr]
    root: str = "root"


def complement(ranges: tuple[Range, ...]) -> tuple[Range, ...]:
    """Every code point outside sorted, disjoint ranges, surrogates left out: they are no characters."""
    found: list[Range] = []
    start = 0
    for first, last in sorted((*ranges, (0xD800, 0xDFFF))):
        if start < first:
            found.append((start, first - 1))
        start = max(start, last + 1)
    return (*found, (start, MAX_CODE_POINT)) if start <= MAX_CODE_POINT else tuple(found)
