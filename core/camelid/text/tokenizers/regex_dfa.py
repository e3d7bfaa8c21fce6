"""An automaton that runs a regex in linear time and keeps Perl's order of alternatives.

A state is a list of positions in the program, the preferred first; a match drops all later positions, so the
match found is the one that backtracking finds. Positions from which no further match was reached are stored,
so that no later search runs there again.
Source: Cox, "Regular Expression Matching: the Virtual Machine Approach" (2009); Reps, "Maximal-munch
tokenization in linear time" (1998).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain as joined
from typing import NoReturn

from camelid.errors import UnsupportedModelError
from camelid.text.grammar.char_classes import Ranges
from camelid.text.tokenizers.regex_syntax import CHAR, LOOK, SPLIT, Instruction, compile_regex

MAX_STEPS = 1 << 16  # transitions of an automaton: its states times the kinds of characters
CACHED = 64
SHORT = 8  # a shorter trail without a match is not worth storing

State = tuple[int, ...]
Step = tuple[int, bool]  # the next state, and True if a match ended before the character
END = 0  # the kind of the end of the text
DEAD = 0  # the state without positions


@dataclass(frozen=True, slots=True)
class Kinds:
    """Kinds of characters: all classes of a regex treat the characters of a kind alike.

    Kinds change at `borders`.
    """

    borders: Sequence[int]
    kinds: Sequence[int]
    members: Sequence[frozenset[int]]  # by kind, the instructions whose class contains it

    def of(self, char: str) -> int:
        return self.kinds[bisect_right(self.borders, ord(char)) - 1]


@dataclass(frozen=True, slots=True)
class Automaton:
    """Finds the matches of a regex. `steps`: by state, by kind."""

    kinds: Kinds
    steps: Sequence[Sequence[Step]]
    start: int

    def spans(self, text: str) -> Iterator[tuple[int, int]]:
        """Start and end of each match, left to right."""
        kind_of = {char: self.kinds.of(char) for char in set(text)}
        kinds = [*map(kind_of.__getitem__, text), END]
        at, vain = 0, set[int]()
        while at < len(text):
            end = self._end(kinds, at, vain)
            if end > at:
                yield at, end
            at = max(end, at + 1)

    def _end(self, kinds: Sequence[int], at: int, vain: set[int]) -> int:
        """The end of the match that starts at `at`; -1 if there is none.

        `vain` are pairs of state and position from which no match was reached.
        """
        steps, n_states = self.steps, len(self.steps)
        state, end = self.start, -1
        trail: list[int] = []
        while state != DEAD:
            state, ends = steps[state][kinds[at]]
            if ends:
                end = at
                trail.clear()
            at += 1
            mark = at * n_states + state
            if mark in vain:
                break
            trail.append(mark)
        if len(trail) > SHORT:
            vain.update(trail)
        return end


@lru_cache(CACHED)
def automaton(regex: str) -> Automaton:
    """The automaton of a regex. Raises UnsupportedModelError if it needs more than MAX_STEPS."""
    program, start = compile_regex(regex)
    kinds = kinds_of(program)
    order: list[State] = [(), (start,)]
    numbers = {state: i for i, state in enumerate(order)}
    steps: list[list[Step]] = []
    for state in order:  # `order` grows during the loop
        found = [stepped(program, state, kind, kinds) for kind in range(len(kinds.members))]
        order += dict.fromkeys(after for after, _ in found if after not in numbers)
        numbers |= {after: i for i, after in enumerate(order[len(numbers) :], len(numbers))}
        steps.append([(numbers[after], ends) for after, ends in found])
        if len(order) * len(kinds.members) > MAX_STEPS:
            refuse(regex)
    return Automaton(kinds, steps, 1)


def refuse(regex: str) -> NoReturn:
    raise UnsupportedModelError(
        f"tokenizer: the regex {regex[:80]!r} needs a too large automaton; add it to tokenizers/published.py",
        kind="regex",
        name=regex[:80],
    )


def kinds_of(program: Sequence[Instruction]) -> Kinds:
    """The kinds: every class cuts the code points in two, and the kinds are the resulting parts."""
    classes = {chars: n for n, chars in enumerate(dict.fromkeys(one.chars for one in program if one.chars))}
    borders = sorted({0, *joined.from_iterable((a, b + 1) for chars in classes for a, b in chars)})
    found: dict[frozenset[int], int] = {frozenset({-1}): END}  # no character is of this kind
    inside = [spread(chars, borders) for chars in classes]
    alike = [frozenset(n for n, marks in enumerate(inside) if marks[i]) for i in range(len(borders))]
    kinds = [found.setdefault(members, len(found)) for members in alike]
    of_class = [
        frozenset(i for i, one in enumerate(program) if one.chars and classes[one.chars] in members)
        for members in found
    ]
    return Kinds(borders, kinds, of_class)


def spread(chars: Ranges, borders: Sequence[int]) -> list[bool]:
    """For each range between borders, True if the class contains it."""
    marks, ends = [False] * len(borders), {border: i for i, border in enumerate(borders)}
    for first, last in chars:
        for i in range(ends[first], ends[last + 1]):
            marks[i] = True
    return marks


def stepped(program: Sequence[Instruction], state: State, kind: int, kinds: Kinds) -> tuple[State, bool]:
    """The positions after a character of this kind, and True if a match ended before it."""
    members, seen, found = kinds.members[kind], set[int](), dict[int, None]()
    waiting = list(reversed(state))
    while waiting:
        place = waiting.pop()
        if place in seen:
            continue
        seen.add(place)
        one = program[place]
        if one.op == SPLIT:
            waiting += (one.other, one.then)
        elif one.op == LOOK:
            waiting += [one.then] if (place in members) != one.negative else []
        elif one.op != CHAR:
            return tuple(found), True
        elif place in members:
            found[one.then] = None
    return tuple(found), False
