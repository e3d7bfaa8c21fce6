"""Checks of option values: each check is a test, the expected values in words, and a normal form."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import TypeGuard, cast

from camelid.errors import RequestError, shown

MAX_INT = 2**31 - 1
MAX_BIAS = 100.0
MAX_BIASED_IDS, MAX_BREAKERS, MAX_BREAKER_LEN = 1024, 32, 40


@dataclass(frozen=True, slots=True)
class Check:
    """The check of one option: `want` is the expected value in words, `normal` makes the stored form."""

    want: str
    test: Callable[[object], bool]
    normal: Callable[[object], object] = lambda value: value

    def read(self, name: str, value: object) -> object:
        """The stored form of a value. Raises RequestError if the value fails the test."""
        if not self.test(value):
            raise RequestError(f"{name} is {shown(value)}, expected {self.want}", field=name)
        return self.normal(value)


def is_number(value: object) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def is_integer(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)


def number(low: float, high: float, *, also: float | None = None, means: str = "") -> Check:
    """Checks for a number in a range, or for the value `also` with a meaning of its own."""
    special = f"{also:g} ({means}) or " if means else ""
    return Check(
        f"{special}a number from {low:g} to {high:g}",
        lambda value: is_number(value) and (value == also or low <= value <= high),
    )


def integer(low: int, high: int = MAX_INT) -> Check:
    """Checks for an integer in a range."""
    limits = f"from {low} to {high}" if high < MAX_INT else f"from {low} on"
    return Check(f"an integer {limits}", lambda value: is_integer(value) and low <= value <= high)


def items(value: object) -> list[object] | None:
    """The items of a list or tuple; None for any other value."""
    return list(cast("Sequence[object]", value)) if isinstance(value, list | tuple) else None


def _is_breakers(value: object) -> bool:
    breakers = items(value)
    return breakers is not None and len(breakers) <= MAX_BREAKERS and all(map(_is_breaker, breakers))


def _is_breaker(item: object) -> bool:
    return isinstance(item, str) and 0 < len(item) <= MAX_BREAKER_LEN


BREAKERS = Check(
    f"a list of at most {MAX_BREAKERS} texts of 1 to {MAX_BREAKER_LEN} characters",
    _is_breakers,
    lambda value: tuple(cast("Sequence[str]", value)),
)


def bias_pairs(value: object) -> list[tuple[object, object]] | None:
    """Pairs (token id, bias) from a mapping or a list of pairs; None for any other value."""
    if isinstance(value, Mapping):
        return list(cast("Mapping[object, object]", value).items())
    entries = [items(item) for item in items(value) or ()]
    pairs = [(entry[0], entry[1]) for entry in entries if entry is not None and len(entry) == 2]
    return pairs if isinstance(value, list | tuple) and len(pairs) == len(entries) else None


def _token_id(value: object) -> int | None:
    """The id; decimal text counts too, since keys of JSON objects are text. None for any other value."""
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) <= 10:
        value = int(value)
    return value if is_integer(value) and 0 <= value <= MAX_INT else None


def _is_bias(value: object) -> bool:
    return value is False or value == -inf or (is_number(value) and abs(value) <= MAX_BIAS)


def _are_biases(value: object) -> bool:
    pairs = bias_pairs(value)
    if pairs is None or len(pairs) > MAX_BIASED_IDS:
        return False
    ids = [_token_id(token_id) for token_id, _ in pairs]
    return None not in ids and len(set(ids)) == len(ids) and all(_is_bias(bias) for _, bias in pairs)


def _biases(value: object) -> tuple[tuple[int, float], ...]:
    pairs = cast("list[tuple[int, float]]", bias_pairs(value))
    return tuple((int(token_id), -inf if bias is False else float(bias)) for token_id, bias in pairs)


BIASES = Check(
    f"{{token id: bias}} with at most {MAX_BIASED_IDS} ids, each once, and biases from -{MAX_BIAS:g} to "
    f"{MAX_BIAS:g} or False, which bans a token",
    _are_biases,
    _biases,
)
