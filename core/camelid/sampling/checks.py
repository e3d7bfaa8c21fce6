"""What values an option may have: each check is one row, and says in its own words what it expects."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import TypeGuard, cast

from camelid.errors import RequestError, shown

MOST_INT = 2**31 - 1
MOST_BIAS = 100.0
MOST_BIASED_IDS, MOST_BREAKERS, MOST_BREAKER_LEN = 1024, 32, 40


@dataclass(frozen=True, slots=True)
class Check:
    """`want` in words, whether a value is that, and the form in which it is kept."""

    want: str
    test: Callable[[object], bool]
    normal: Callable[[object], object] = lambda value: value

    def read(self, name: str, value: object) -> object:
        """The value as it is kept. RequestError if it is not what is wanted."""
        if not self.test(value):
            raise RequestError(f"{name} is {shown(value)}, expected {self.want}", field=name)
        return self.normal(value)


def is_number(value: object) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def is_integer(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)


def number(low: float, high: float, *, also: float | None = None, means: str = "") -> Check:
    """A number in this range, or one that has a meaning of its own."""
    named = f"{also:g} ({means}) or " if means else ""
    return Check(
        f"{named}a number from {low:g} to {high:g}",
        lambda value: is_number(value) and (value == also or low <= value <= high),
    )


def integer(low: int, high: int = MOST_INT) -> Check:
    """A whole number in this range."""
    most = f"from {low} to {high}" if high < MOST_INT else f"from {low} on"
    return Check(f"an integer {most}", lambda value: is_integer(value) and low <= value <= high)


def items(value: object) -> list[object] | None:
    """The items of a list or tuple; None for anything else."""
    return list(cast("Sequence[object]", value)) if isinstance(value, list | tuple) else None


def _is_breakers(value: object) -> bool:
    found = items(value)
    return found is not None and len(found) <= MOST_BREAKERS and all(map(_is_breaker, found))


def _is_breaker(item: object) -> bool:
    return isinstance(item, str) and 0 < len(item) <= MOST_BREAKER_LEN


BREAKERS = Check(
    f"a list of at most {MOST_BREAKERS} texts of 1 to {MOST_BREAKER_LEN} characters",
    _is_breakers,
    lambda value: tuple(cast("Sequence[str]", value)),
)


def bias_pairs(value: object) -> list[tuple[object, object]] | None:
    """Pairs of token id and bias, of a mapping or of pairs; None for anything else."""
    if isinstance(value, Mapping):
        return list(cast("Mapping[object, object]", value).items())
    found = [items(item) for item in items(value) or ()]
    pairs = [(item[0], item[1]) for item in found if item is not None and len(item) == 2]
    return pairs if isinstance(value, list | tuple) and len(pairs) == len(found) else None


def _token_id(value: object) -> int | None:
    """JSON writes the keys of an object as text."""
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) <= 10:
        value = int(value)
    return value if is_integer(value) and 0 <= value <= MOST_INT else None


def _is_bias(value: object) -> bool:
    return value is False or value == -inf or (is_number(value) and abs(value) <= MOST_BIAS)


def _are_biases(value: object) -> bool:
    pairs = bias_pairs(value)
    if pairs is None or len(pairs) > MOST_BIASED_IDS:
        return False
    ids = [_token_id(token_id) for token_id, _ in pairs]
    return None not in ids and len(set(ids)) == len(ids) and all(_is_bias(bias) for _, bias in pairs)


def _biases(value: object) -> tuple[tuple[int, float], ...]:
    pairs = cast("list[tuple[int, float]]", bias_pairs(value))
    return tuple((int(token_id), -inf if bias is False else float(bias)) for token_id, bias in pairs)


BIASES = Check(
    f"{{token id: bias}} with at most {MOST_BIASED_IDS} ids, each once, and biases from -{MOST_BIAS:g} to "
    f"{MOST_BIAS:g} or False, which bans a token",
    _are_biases,
    _biases,
)
