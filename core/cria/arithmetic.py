"""Sums and differences within 0..99, their training phrasings, and arithmetic that cria must refuse."""

from random import Random

from cria.phrasing import expand_all
from cria.words import held_out

LIMIT = 99

ADD_NOUNS = expand_all("""
{a} + {b}
{a} plus {b}
the sum of {a} and {b}
the [total|result] of {a} [and|plus|+] {b}
{a} and {b} [together|added|in total|added together|added up]
the answer to {a} [+|plus] {b}
{a} added to {b}
{a} [with|and] {b} [more|added]
""")
ADD_CORES = expand_all("""
{a}+{b}
{a} +{b}
{a}+{b}=
{a} + {b} =
{a} plus {b} [equals|is|makes|gives]
[what is|what's|how much is] {a} [+|plus|and] {b}
how much [do|are|would] {a} and {b} [make|give|be]
what do {a} and {b} [make|give] [|together]
what do you get [if|when] you add {a} [and|to] {b}
what do i get [if|when] i add {b} to {a}
add {a} [to|and|plus] {b}
add {a} and {b} together
add up {a} and {b}
add the numbers {a} and {b}
[sum|sum of|total of|total] {a} and {b}
[compute|calculate|solve|work out|find|count|do] {a} [+|plus] {b}
[compute|calculate|work out|find|give me] the [sum|total] of {a} and {b}
put {a} and {b} together
take {a} and add {b}
start [with|at|from] {a} and add {b}
i have {a} and [get|find|buy|add] {b} more. how many do i have [now|in total|]
there are {a} [birds|apples|books] and {b} more [come|arrive]. how many are there [now|]
if i add {a} to {b}, what [is it|do i get]
{a} more than {b}
what [number|] is {a} more than {b}
[raise|increase] {a} by {b}
{a} + {b} is how much
{a} plus {b} is what
{a} + {b} makes what
""")
SUB_NOUNS = expand_all("""
{a} - {b}
{a} minus {b}
the difference [of|between] {a} and {b}
the result of {a} [minus|-] {b}
the answer to {a} [-|minus] {b}
{a} less {b}
{a} take away {b}
{b} less than {a}
{b} [taken|taken away|subtracted|removed] from {a}
{a} without {b}
""")
SUB_CORES = expand_all("""
{a}-{b}
{a} -{b}
{a}-{b}=
{a} - {b} =
{a} minus {b} [equals|is|makes|gives]
[what is|what's|how much is] {a} [-|minus|less|take away] {b}
what do you get [if|when] you [subtract|take|take away] {b} from {a}
what do i get [if|when] i [subtract|take|remove] {b} from {a}
[subtract|take|take away|remove|deduct] {b} from {a}
take {b} away from {a}
[take|start with|start at|start from] {a} and [subtract|take away|remove|go down] {b}
from {a} [subtract|take|take away|remove] {b}
[difference between|difference of|difference] {a} and {b}
[compute|calculate|solve|work out|find|count|do] {a} [-|minus] {b}
[compute|calculate|work out|find|give me] the difference [between|of] {a} and {b}
i have {a} and [lose|give away|eat|sell] {b}. how many [do i have|are left] [now|]
there are {a} [birds|apples|books] and {b} [go away|are lost]. how many are [there now|left]
if i take {b} from {a}, what [is left|do i get]
what is left [if|when] {b} [is taken|is removed] from {a}
how [much|many] is left of {a} [without|after losing|minus] {b}
what [number|] is {b} less than {a}
how much [more is {a} than {b}|bigger is {a} than {b}]
[lower|reduce|decrease] {a} by {b}
{a} - {b} is how much
{a} minus {b} is what
{a} - {b} makes what
""")
# Operations outside the training data, for any numbers.
OTHER_CORES = expand_all("""
{a} [*|x|/|^|%] {b}
{a}[*|x|/|^]{b}
[what is|what's|how much is|compute|calculate|find|solve|tell me|give me|do|work out] {a} [*|x|times|multiplied by|/|divided by|over|to the power of|modulo|mod] {b}
[multiply|divide|raise] {a} [by|with|and|to] {b}
{a} [times|multiplied by|divided by|to the power of] {b} [is|equals|=|]
the [product|ratio|average|mean|quotient|remainder|greatest common divisor] of {a} and {b}
[what is|find|compute|calculate] the [product|ratio|average|mean|quotient|remainder|square] of {a} and {b}
[what is|find] {a} percent of {b}
[is {a}|are {a}] [bigger|smaller|more|greater|less] than {b}
which is [bigger|smaller], {a} or {b}
how many times [does {a} go into {b}|is {a} in {b}]
{a} [plus|+|minus|-] {b} [times|*|/|divided by] {c}
{a} [+|plus|-|minus] {b} [+|plus|-|minus] {c}
[add|sum] {a}, {b} and {c}
[double|half of|square|the square root of|cube|the factorial of|halve] {a}
[count|numbers] from {a} to {b}
a number between {a} and {b}
{a}.5 [+|-|plus|minus] {b}
[what is|how much is] {a} and a half [plus|minus] {b}
""")


def sum_held_out(a: int, b: int) -> bool:
    """True if a sum, in either order, is reserved for the grader."""
    return held_out(f"{min(a, b)}+{max(a, b)}")


def difference_held_out(a: int, b: int) -> bool:
    """True if a difference is reserved for the grader."""
    return held_out(f"{a}-{b}")


def sum_numbers(rng: Random, want_held_out: bool = False) -> tuple[int, int]:
    """Two numbers with a sum of at most 99, for training or (held out) for the grader."""
    while True:
        a, b = rng.randint(0, LIMIT), rng.randint(0, LIMIT)
        if a + b <= LIMIT and sum_held_out(a, b) == want_held_out:
            return a, b


def difference_numbers(rng: Random, want_held_out: bool = False) -> tuple[int, int]:
    """Two numbers `a >= b` within 0..99, for training or (held out) for the grader."""
    while True:
        a, b = rng.randint(0, LIMIT), rng.randint(0, LIMIT)
        if a >= b and difference_held_out(a, b) == want_held_out:
            return a, b


def sum_answer(a: int, b: int) -> str:
    """The answer to a sum: `12 + 34 = 46.`"""
    return f"{a} + {b} = {a + b}."


def difference_answer(a: int, b: int) -> str:
    """The answer to a difference: `90 - 8 = 82.`"""
    return f"{a} - {b} = {a - b}."


def too_large_sum(rng: Random) -> tuple[int, int]:
    """Two numbers with a sum above 99; half the time one number is itself above 99."""
    if rng.random() < 0.5:
        a = rng.randint(1, LIMIT)
        return a, rng.randint(LIMIT + 1 - a, LIMIT)
    return either_way(rng, large(rng), rng.choice((rng.randint(0, LIMIT), large(rng))))


def bad_difference(rng: Random) -> tuple[int, int]:
    """Two numbers with a negative difference, or at least one number above 99."""
    if rng.random() < 0.5:
        b = rng.randint(1, LIMIT)
        return rng.randint(0, b - 1), b
    return either_way(rng, large(rng), rng.choice((rng.randint(0, LIMIT), large(rng))))


def large(rng: Random) -> int:
    """A number of three to six digits."""
    return rng.randint(LIMIT + 1, 10 ** rng.randint(3, 6) - 1)


def either_way(rng: Random, a: int, b: int) -> tuple[int, int]:
    """The two numbers in a random order."""
    return (a, b) if rng.random() < 0.5 else (b, a)
