"""Numbers within bounds, and multiples, as automata over the characters of their JSON spelling.

The automata also hold for a reader that converts decimals to doubles. Rounding keeps order, so inclusive
bounds hold; a number next to a strict bound has at most 15 digits, within which all decimals are distinct
doubles. Bounded numbers have no exponent.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass
from fractions import Fraction
from typing import TypeAlias

from camelid.errors import RequestError
from camelid.text.grammar.builder import DEAD, NOTHING, in_order, one_of, optional
from camelid.text.grammar.dfa import Dfa, Edge, check_size, dfa_of, intersect, trimmed
from camelid.text.grammar.json_text import DIGIT, FROM_ONE, MAX_DIGITS, digits
from camelid.text.grammar.rules import Chars, Expr, Repeat, Text

EXACT_DIGITS = 15  # decimals of up to 15 digits are distinct doubles
EXACT_INTEGER = 2**53
MAX_BOUND_DIGITS = 400
MAX_STEP_DECIMALS = 3
FEW_DECIMALS = 6  # beside long bounds, where doubles cannot resolve more
ZERO = Fraction(0)
DIGITS = Repeat(DIGIT)
Digits: TypeAlias = tuple[int, int, int]  # remainder, trailing zeros, decimals; see `multiples`


def exact(value: float) -> Fraction:
    """The exact value of a bound: its decimal spelling, or the double itself from 2**53 on."""
    return Fraction(value) if isinstance(value, int) or abs(value) >= EXACT_INTEGER else Fraction(repr(value))


@dataclass(frozen=True, slots=True)
class Bound:
    """The end of an interval; excluded if `strict`."""

    value: Fraction
    strict: bool = False


@dataclass(frozen=True, slots=True)
class Interval:
    """The numbers from `low` to `high` that are multiples of `step`. None means no bound, or any number."""

    low: Bound | None = None
    high: Bound | None = None
    step: Fraction | None = None
    is_double_step: bool = False  # a float step: readers divide in doubles
    integral: bool = False

    @property
    def is_free(self) -> bool:
        return self.low is None and self.high is None and self.step is None


def magnitudes(interval: Interval) -> tuple[Dfa, Dfa]:
    """The automata of the numbers without a sign, and of the numbers after a minus, without 0.

    Raises RequestError if the bounds or the step are too large to follow.
    """
    low, high = interval.low, interval.high
    step, step_decimals = checked_step(interval)
    whole_digits = max((whole_length(bound) for bound in (low, high) if bound), default=0)
    decimals, shape = shape_of(interval, whole_digits, step_decimals)
    plus = between(low if low and reaches(low) else Bound(ZERO), high, decimals, shape)
    up_to = Bound(-high.value, high.strict) if high and high.value < 0 else Bound(ZERO, strict=True)
    minus = between(up_to, Bound(-low.value, low.strict) if low else None, decimals, shape)
    if step is not None:
        multiple = multiples(step, decimals)
        plus, minus = intersect(plus, multiple), intersect(minus, multiple)
    return plus, minus


def reaches(low: Bound) -> bool:
    """True if a lower bound excludes any unsigned number."""
    return low.value > 0 or (low.value == 0 and low.strict)


def whole_length(bound: Bound) -> int:
    """The number of digits of a bound's integer part. Raises RequestError beyond MAX_BOUND_DIGITS."""
    n = len(str(abs(math.trunc(bound.value))))
    if n > MAX_BOUND_DIGITS:
        raise RequestError(f"a bound has more than {MAX_BOUND_DIGITS} digits", field="grammar")
    return n


def checked_step(interval: Interval) -> tuple[Fraction | None, int | None]:
    """The step and the decimals of its multiples; None for any number of decimals.

    Raises RequestError for a step whose multiples doubles do not represent exactly.
    """
    step = interval.step
    if step is None:
        return None, None
    if interval.integral:
        return Fraction(step.numerator), 0
    decimals = step.denominator.bit_length() - 1
    if step.denominator != 1 << decimals or decimals > MAX_STEP_DECIMALS:
        raise RequestError(
            f"multiples of {float(step)} are ambiguous for readers that divide doubles; use a whole "
            "number of a smaller unit, or a step such as 0.5 or 0.25",
            field="grammar",
        )
    return step, decimals


def shape_of(interval: Interval, whole_digits: int, step_decimals: int | None) -> tuple[int, Dfa]:
    """The maximum number of decimals, and the automaton of unsigned numbers without exponent."""
    most: int | None = max(MAX_DIGITS, whole_digits + 1)
    with_decimals: int | None = most
    decimals = EXACT_DIGITS - whole_digits
    if interval.integral or step_decimals is not None:
        decimals = step_decimals or 0
        if interval.step is not None:  # counting digits beside remainders would need a state for each pair
            most = with_decimals = EXACT_DIGITS - decimals if interval.is_double_step else None
    elif decimals < FEW_DECIMALS:
        decimals, with_decimals = FEW_DECIMALS, EXACT_DIGITS - FEW_DECIMALS
    fraction = in_order(".", Repeat(DIGIT, 1, decimals)) if decimals else DEAD
    return decimals, dfa_of(one_of(digits(most), in_order(digits(with_decimals), fraction)))


def between(low: Bound, high: Bound | None, decimals: int, shape: Dfa) -> Dfa:
    """Unsigned numbers of a shape from low to high; low is not negative."""
    if high and (high.value < low.value or (high.value == low.value and (high.strict or low.strict))):
        return Dfa(((),), frozenset())
    found = intersect(shape, dfa_of(at_least(rounded(low, decimals, up=True))))
    return intersect(found, dfa_of(at_most(rounded(high, decimals, up=False)))) if high else found


def rounded(bound: Bound, decimals: int, *, up: bool) -> Bound:
    """A strict bound with more decimals than the numbers have, moved inwards to the next such number."""
    scaled = bound.value * 10**decimals
    if not bound.strict or scaled.denominator == 1:
        return bound
    inside = math.ceil(scaled) if up else math.floor(scaled)
    return Bound(Fraction(inside, 10**decimals))


def written(value: Fraction) -> tuple[str, str]:
    """The integer part and the decimals of a non-negative number, without trailing zeros."""
    whole, rest = divmod(value, 1)
    decimals: list[str] = []
    while rest:
        digit, rest = divmod(rest * 10, 1)
        decimals.append(str(digit))
    return str(whole), "".join(decimals)


def digit_between(first: int, last: int) -> Expr:
    return Chars(((0x30 + first, 0x30 + last),))


def higher(text: str) -> list[Expr]:
    """Digits that are higher than the text's at the first difference; `DIGITS` follow."""
    return [in_order(text[:i], digit_between(int(d) + 1, 9), DIGITS) for i, d in enumerate(text) if d != "9"]


def lower(text: str) -> list[Expr]:
    """Digits that are lower than the text's at the first difference; `DIGITS` follow."""
    return [in_order(text[:i], digit_between(0, int(d) - 1), DIGITS) for i, d in enumerate(text) if d != "0"]


ANY_DECIMALS = optional(in_order(".", DIGIT, DIGITS))


def whole_above(text: str) -> list[Expr]:
    """The integers above the given one."""
    n = len(text)
    same = [
        in_order(text[:i], digit_between(int(d) + 1, 9), Repeat(DIGIT, n - i - 1, n - i - 1))
        for i, d in enumerate(text)
        if d != "9"
    ]
    return [*same, in_order(FROM_ONE, Repeat(DIGIT, n, None))]


def whole_below(text: str) -> list[Expr]:
    """The integers from 0 below the given one."""
    n = len(text)
    same = [
        in_order(text[:i], digit_between(i == 0, int(d) - 1), Repeat(DIGIT, n - i - 1, n - i - 1))
        for i, d in enumerate(text)
        if int(d) > (i == 0)
    ]
    shorter = [in_order(FROM_ONE, Repeat(DIGIT, 0, n - 2))] if n > 1 else []
    return [*same, *shorter, *([Text("0")] if text != "0" else [])]


def at_least(bound: Bound) -> Expr:
    """The unsigned numbers at or above the bound; above it if strict."""
    whole, decimals = written(bound.value)
    more = [in_order(".", way) for way in higher(decimals)]
    nonzero = in_order(DIGITS, FROM_ONE, DIGITS)
    if bound.strict:
        more.append(in_order(".", decimals, nonzero))
    else:
        more.append(in_order(".", decimals, DIGITS) if decimals else ANY_DECIMALS)
    above = in_order(one_of(*whole_above(whole)), ANY_DECIMALS)
    return one_of(above, in_order(whole, one_of(*more)))


def at_most(bound: Bound) -> Expr:
    """The unsigned numbers at or below the bound; below it if strict."""
    whole, decimals = written(bound.value)
    less = [in_order(".", way) for way in lower(decimals)]
    less += [in_order(".", decimals[:i]) for i in range(1, len(decimals))]
    if decimals or not bound.strict:
        less.append(NOTHING)
    if not bound.strict:
        less.append(in_order(".", decimals, Repeat(Text("0"), 0 if decimals else 1, None)))
    ways = [in_order(whole, one_of(*less))] if less else []
    below = whole_below(whole)
    return one_of(*ways, *([in_order(one_of(*below), ANY_DECIMALS)] if below else []))


def multiples(step: Fraction, decimals: int) -> Dfa:
    """The automaton of the unsigned multiples of a step, with at most `decimals` decimals.

    A state is the remainder of the digits so far without trailing zeros, the number of trailing zeros up to
    those of the step, and the number of decimals read, -1 before the point.
    """
    scale = 10**decimals
    number = int(step * scale)
    zeros = 0
    while not decimals and number % 10 == 0:
        number, zeros = number // 10, zeros + 1
    index: dict[Digits, int] = {(0, zeros, -1): 0}
    queue = deque(index)
    rows: list[list[Edge]] = []
    final: set[int] = set()
    while queue:
        state = queue.popleft()
        if divides(state, number, decimals, zeros):
            final.add(index[state])
        row: list[Edge] = []
        for char, target in onward(state, number, decimals, zeros):
            if target not in index:
                index[target] = len(index)
                queue.append(target)
                check_size(len(index), 10 * len(index))
            row.append((ord(char), ord(char), index[target]))
        rows.append(row)
    return trimmed(rows, final)


def divides(state: Digits, number: int, decimals: int, zeros: int) -> bool:
    remainder, n_zeros, n_read = state
    missing = decimals - max(n_read, 0)
    return remainder * 10**missing % number == 0 and n_zeros == zeros and n_read != 0


def onward(state: Digits, number: int, decimals: int, zeros: int) -> list[tuple[str, Digits]]:
    """The states after each possible next character, in the order of the characters."""
    remainder, n_zeros, n_read = state
    found: list[tuple[str, Digits]] = []
    if decimals and n_read < 0:
        found.append((".", (remainder, n_zeros, 0)))
    if n_read == decimals and n_read > 0:
        return found
    n_read = n_read + (n_read >= 0)
    zero = (remainder, n_zeros + 1, n_read) if n_zeros < zeros else (remainder * 10 % number, zeros, n_read)
    found.append(("0", zero))
    for digit in range(1, 10):
        value = (remainder * 10 ** (n_zeros + 1) + digit) % number
        found.append((str(digit), (value, 0, n_read)))
    return found
