"""Rules of mixes: the type of a tensor by its part of the model and its place among the tensors of that part.

A rule returns a type, or "" for the mix's own type. The mixes are those of llama.cpp's quantizer, so that
files of the same name have the same types.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """Facts of a model that rules read.

    `gqa` is the number of query heads per head of keys; `is_70b` is true for the shape that llama.cpp calls
    70B; `imatrix` is true if an importance matrix is given.
    """

    arch: str
    gqa: int
    experts: int
    layers: int
    is_70b: bool = False
    imatrix: bool = False


@dataclass(frozen=True, slots=True)
class Place:
    """A tensor's layer `i` of the `n` that have its part, its number in `order` among all tensors of the
    part, and the facts of its model."""

    i: int
    n: int
    order: int
    facts: Facts

    @property
    def is_sensitive(self) -> bool:
        """True for the first and the last eighth, and for every third between them."""
        first = self.n // 8
        return self.i < first or self.i >= 7 * self.n // 8 or (self.i - first) % 3 == 2


Rule: TypeAlias = Callable[[Place], str]
Test: TypeAlias = Callable[[Place], bool]


def always(name: str) -> Rule:
    """One type everywhere."""
    return lambda _: name


def where(test: Test, then: str | Rule, other: str | Rule = "") -> Rule:
    """A type or rule where a test holds, else another."""

    def rule(place: Place) -> str:
        chosen = then if test(place) else other
        return chosen if isinstance(chosen, str) else chosen(place)

    return rule


def first(parts: int) -> Test:
    """True in the first of so many parts of the layers."""
    return lambda place: place.i < place.n // parts


def first_in_order(parts: int) -> Test:
    """True for the first tensors, one of so many parts of the layers; a layer may have several tensors."""
    return lambda place: place.order < place.n // parts


def before(i: int) -> Test:
    """True in the first `i` layers."""
    return lambda place: place.i < i


def both(*tests: Test) -> Test:
    """True where all tests hold."""
    return lambda place: all(test(place) for test in tests)


def either(*tests: Test) -> Test:
    """True where one of the tests holds."""
    return lambda place: any(test(place) for test in tests)


def sensitive(place: Place) -> bool:
    """True in layers whose error costs the most."""
    return place.is_sensitive


def middle(place: Place) -> bool:
    """True outside the first and the last eighth."""
    return place.n // 8 <= place.i < 7 * place.n // 8


def shared_heads(place: Place) -> bool:
    """True if at least four query heads share a head of keys, so that values are small and dear."""
    return place.facts.gqa >= 4


def many_experts(place: Place) -> bool:
    """True with at least four experts."""
    return place.facts.experts >= 4


def eight_experts(place: Place) -> bool:
    """True with exactly eight experts, as in Mixtral."""
    return place.facts.experts == 8


def falcon(place: Place) -> bool:
    """True for Falcon, whose layers differ."""
    return place.facts.arch == "falcon"


def imatrix(place: Place) -> bool:
    """True if an importance matrix is given."""
    return place.facts.imatrix


def no(test: Test) -> Test:
    """True where a test does not hold."""
    return lambda place: not test(place)
