"""Expressions as nondeterministic automata over bytes, in fragments that are copied by reference.

A fragment's states refer to each other by distance, so n copies of a fragment are n references to the same
states: `[^"]{0,2000}` costs a list of pointers. State 0 is the entry, which no edge leads back to; the last
state is the exit, which no edge leaves.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from camelid.errors import RequestError
from camelid.text.grammar.rules import Range

ByteRange: TypeAlias = tuple[int, int]
Chain: TypeAlias = tuple[int, int]  # distance to the same state of the next copy, copies from here on
# No token of at most SHORT_BYTES bytes distinguishes two copies of a long repetition; see `Fragment.same`.
SHORT_BYTES = 32
LAST_OF_LENGTH = (0x7F, 0x7FF, 0xFFFF, 0x10FFFF)  # the last code point of 1, 2, 3 and 4 UTF-8 bytes


class State(NamedTuple):
    """The edges that leave a state; the last number of each entry is the distance to the target state."""

    ranges: tuple[tuple[int, int, int], ...] = ()  # first byte, last byte, distance
    skips: tuple[int, ...] = ()  # distances of the edges that read nothing
    calls: tuple[tuple[str, int], ...] = ()  # rule, distance
    tokens: tuple[tuple[frozenset[int], bool, int], ...] = ()  # token ids, negated, distance


BLANK = State()


@dataclass(frozen=True, slots=True)
class Fragment:
    """An automaton from its entry to its exit.

    states: entry first, exit last.
    same: for each state, the distance to a state that no SHORT_BYTES bytes distinguish from it.
    chains: for each state, the innermost bounded repetition around it.
    longest: the longest match in bytes; None if unbounded, or unknown because a rule is called.
    """

    states: list[State]
    same: list[int]
    chains: list[Chain | None]
    longest: int | None

    def __len__(self) -> int:
        return len(self.states)


def plain(states: list[State], longest: int | None) -> Fragment:
    """A fragment without repetition."""
    return Fragment(states, [0] * len(states), [None] * len(states), longest)


EMPTY = plain([BLANK], 0)


def text(characters: str) -> Fragment:
    """The fragment of a text. Raises RequestError for a lone surrogate."""
    data = encoded(characters)
    return plain([*(State(((byte, byte, 1),)) for byte in data), BLANK], len(data))


def words(texts: Iterable[str]) -> Fragment:
    """The fragment of any one of the texts: a prefix tree, so each text has a single parse."""
    nodes: list[dict[int, int]] = [{}]
    ends, longest = set[int](), 0
    for data in map(encoded, texts):
        node, longest = 0, max(longest, len(data))
        for byte in data:
            if byte not in nodes[node]:
                nodes[node][byte] = len(nodes)
                nodes.append({})
            node = nodes[node][byte]
        ends.add(node)
    states = [
        State(
            tuple((byte, byte, to - i) for byte, to in node.items()),
            (len(nodes) - i,) if i in ends else (),
        )
        for i, node in enumerate(nodes)
    ]
    return plain([*states, BLANK], longest)


def encoded(characters: str) -> bytes:
    try:
        return characters.encode()
    except UnicodeEncodeError as error:
        raise RequestError(
            f"the grammar has a lone surrogate, U+{ord(characters[error.start]):04X}, in a text; "
            "no model can write it, so leave it out",
            field="grammar",
        ) from None


def call(rule: str) -> Fragment:
    """The fragment that calls a rule."""
    return plain([State(calls=((rule, 1),)), BLANK], None)


def token(token_ids: frozenset[int], negated: bool) -> Fragment | None:
    """The fragment of one token; None for an empty set of tokens."""
    return plain([State(tokens=((token_ids, negated, 1),)), BLANK], None) if token_ids or negated else None


def chars(ranges: tuple[Range, ...]) -> Fragment | None:
    """The fragment of one character as UTF-8; None if the ranges are empty. Surrogates are excluded."""
    sequences = [s for first, last in ranges for s in utf8_sequences(first, last)]
    if not sequences:
        return None
    states: list[dict[int, set[ByteRange]]] = []  # byte ranges by target state; -1: the exit
    number_state(frozenset(sequences), states, {})
    size = len(states)
    found = [
        State(tuple((*r, (size if to < 0 else to) - i) for to, rs in edges.items() for r in joined(rs)))
        for i, edges in enumerate(states)
    ]
    return plain([*found, BLANK], max(map(len, sequences)))


def number_state(
    sequences: frozenset[tuple[ByteRange, ...]],
    states: list[dict[int, set[ByteRange]]],
    known: dict[frozenset[tuple[ByteRange, ...]], int],
) -> int:
    """The number of the state from which exactly these byte sequences reach the exit.

    At most four levels deep.
    """
    if () in sequences:
        return -1
    if sequences in known:
        return known[sequences]
    index = known[sequences] = len(states)
    states.append({})
    tails: dict[ByteRange, set[tuple[ByteRange, ...]]] = {}
    for first, *rest in sequences:
        tails.setdefault(first, set()).add(tuple(rest))
    for first in sorted(tails):
        target = number_state(frozenset(tails[first]), states, known)
        states[index].setdefault(target, set()).add(first)
    return index


def joined(ranges: Iterable[ByteRange]) -> list[ByteRange]:
    """Sorted byte ranges, adjacent ranges merged."""
    found: list[ByteRange] = []
    for first, last in sorted(ranges):
        if found and first <= found[-1][1] + 1:
            found[-1] = (found[-1][0], max(last, found[-1][1]))
        else:
            found.append((first, last))
    return found


def utf8_sequences(first: int, last: int) -> Iterator[tuple[ByteRange, ...]]:
    """Byte ranges whose products are the UTF-8 of first … last (the split of RE2 and utf8-ranges).

    Any two sequences have equal or disjoint ranges at the first position where they differ.
    """
    todo = [(first, min(last, 0xD7FF)), (max(first, 0xE000), last)]
    while todo:
        low, high = todo.pop()
        if low <= high:
            cut = cut_point(low, high)
            if cut is None:
                yield tuple(zip(chr(low).encode(), chr(high).encode(), strict=True))
            else:
                todo += [(cut, high), (low, cut - 1)]


def cut_point(low: int, high: int) -> int | None:
    """The split of low … high into parts whose bytes vary independently; None: no split."""
    for last in LAST_OF_LENGTH:
        if low <= last < high:
            return last + 1
    for bits in (6, 12, 18):
        if high > 0x7F and low >> bits != high >> bits:
            ones = (1 << bits) - 1
            if low & ones:
                return (low | ones) + 1
            if high & ones != ones:
                return high & ~ones
    return None


def in_sequence(parts: Iterable[Fragment]) -> Fragment:
    """The parts in sequence: the exit of each part is the entry of the next."""
    states, same, chains, longest = list[State](), list[int](), list[Chain | None](), [0]
    for part in parts:
        states += part.states[:-1]
        same += part.same[:-1]
        chains += part.chains[:-1]
        longest = [-1] if part.longest is None or longest[0] < 0 else [longest[0] + part.longest]
    return Fragment([*states, BLANK], [*same, 0], [*chains, None], None if longest[0] < 0 else longest[0])


def any_of(parts: list[Fragment]) -> Fragment:
    """A choice of at least two parts."""
    size = 2 + sum(map(len, parts))
    states, same, chains, entries = [BLANK], [0], list[Chain | None]([None]), list[int]()
    for part in parts:
        entries.append(len(states))
        states += part.states[:-1]
        states.append(State(skips=(size - 1 - len(states),)))
        same += part.same
        chains += part.chains
    states[0] = State(skips=tuple(entries))
    bounds = [part.longest for part in parts if part.longest is not None]
    longest = max(bounds) if len(bounds) == len(parts) else None
    return Fragment([*states, BLANK], [*same, 0], [*chains, None], longest)


def endless(part: Fragment, *, optional: bool) -> Fragment:
    """A part one or more times; with `optional`, zero or more."""
    size = len(part)
    entry = State(skips=(1, size + 1) if optional else (1,))
    back = State(skips=(1 - size, 1))
    return Fragment(
        [entry, *part.states[:-1], back, BLANK], [0, *part.same, 0], [None, *part.chains, None], None
    )


def repeated(part: Fragment, least: int, most: int) -> Fragment:
    """A part from `least` to `most` (at least 1) times; copies after the first `least` are optional."""
    stride = len(part) - 1
    states = part.states[:-1] * most
    same, chains = list[int](), list[Chain | None]()
    for copy in range(most):
        if copy >= least:
            entry = states[copy * stride]
            states[copy * stride] = entry._replace(skips=(*entry.skips, (most - copy) * stride))
        moved = (far_copy(copy, least, most) - copy) * stride
        same += [moved + distance for distance in part.same[:-1]]
        chains += [chain or (stride, most - copy) for chain in part.chains[:-1]]
    longest = None if part.longest is None else part.longest * most
    return Fragment([*states, BLANK], [*same, 0], [*chains, None], longest)


def far_copy(copy: int, least: int, most: int) -> int:
    """The last copy that is at least SHORT_BYTES + 1 copies before the next border of the repetition.

    The borders are `least`, where the repetition may end, and `most`, where it must. Each copy reads at least
    one byte, so no SHORT_BYTES bytes lead from either copy to a border.
    """
    border = least if copy < least else most
    return max(copy, border - SHORT_BYTES - 1)
