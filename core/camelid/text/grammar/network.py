"""A compiled grammar: a recursive transition network over byte classes, as plain tables of integers.

The states of a rule have consecutive numbers. An arc reads a byte of a class, a call runs another rule and
continues at its return state, a token arc reads one whole token. `assembly` makes and checks the tables,
`configs` runs the network. Another process can send the tables, since they are bytes.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields
from functools import cached_property
from typing import NamedTuple, TypeAlias

Ints: TypeAlias = "array[int]"
LARGEST = (1 << 31) - 1  # of an entry; a larger token id is in no vocabulary
PLACE_BYTES = 400  # of one decoded place, roughly


class Place(NamedTuple):
    """A state with its byte ranges as classes, shared by equal states.

    The last number of an entry is a distance.
    """

    arcs: tuple[tuple[int, int], ...]  # byte class, distance
    skips: tuple[int, ...]
    calls: tuple[tuple[int, int], ...]  # rule, distance
    tokens: tuple[tuple[frozenset[int], bool, int], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tables:
    """The numbers of a compiled grammar: by rule (R), by state (S), by byte value, and places as words."""

    root: Ints  # [1] the rule of a whole text
    classes: Ints  # [256] the class of each byte value
    starts: Ints  # [R] first state
    ends: Ints  # [R] last state; -1 for a rule that matches nothing
    nullable: Ints  # [R] 1 for a rule that matches the empty text
    ranks: Ints  # [R] a rule ranks before the rules that it may begin with
    same: Ints  # [S] distance to a state that no short token distinguishes from it
    strides: Ints  # [S] distance to the same state of the next copy of a bounded repetition; 0: none
    copies: Ints  # [S] copies from here on
    at: Ints  # [S] where in `words` the place of a state begins
    words: Ints

    def parts(self) -> list[bytes]:
        """The tables as bytes, in the order of the fields."""
        return [getattr(self, field.name).tobytes() for field in fields(self)]

    @classmethod
    def of_parts(cls, parts: Iterable[bytes]) -> Tables:
        """The tables of `parts`, on the same kind of machine."""
        return cls(**{field.name: array("i", part) for field, part in zip(fields(cls), parts, strict=True)})

    @property
    def n_bytes(self) -> int:
        return sum(4 * len(getattr(self, field.name)) for field in fields(self))


def words_of(place: Place) -> Iterator[int]:
    """A place as integers: the length of each part, then its entries; a token arc has its own length."""
    yield from (len(place.arcs), len(place.skips), len(place.calls), len(place.tokens))
    for arc in place.arcs:
        yield from arc
    yield from place.skips
    for call in place.calls:
        yield from call
    for token_ids, negated, distance in place.tokens:
        known = sorted(token_id for token_id in token_ids if 0 <= token_id <= LARGEST)
        yield from (negated, distance, len(known), *known)


def place_at(words: Ints, at: int) -> Place:
    """The place whose `words_of` begin at an index."""
    n_arcs, n_skips, n_calls, n_tokens = words[at : at + 4]
    arcs = at + 4
    skips = arcs + 2 * n_arcs
    calls = skips + n_skips
    end = calls + 2 * n_calls
    tokens = list[tuple[frozenset[int], bool, int]]()
    for _ in range(n_tokens):
        negated, distance, n_ids = words[end : end + 3]
        end += 3 + n_ids
        tokens.append((frozenset(words[end - n_ids : end]), bool(negated), distance))
    called = words[calls : calls + 2 * n_calls]
    return Place(pairs(words[arcs:skips]), tuple(words[skips:calls]), pairs(called), tuple(tokens))


def pairs(numbers: Ints) -> tuple[tuple[int, int], ...]:
    return tuple(zip(numbers[::2], numbers[1::2], strict=True))


class Reach(NamedTuple):
    """The closure of a state within its rule before anything is read."""

    reading: tuple[int, ...]  # states with arcs or token arcs
    calls: tuple[tuple[int, int], ...]  # rule, state to return to
    ends: bool  # the rule may end here

    @property
    def only_ends(self) -> bool:
        """True if the rule can only end here, so a call may return directly to the rule's caller."""
        return self.ends and not self.reading and not self.calls


class Network:
    """A compiled grammar, independent of any tokenizer."""

    def __init__(self, tables: Tables, places: dict[int, Place] | None = None) -> None:
        self.tables = tables
        self.root = tables.root[0]
        self.class_of = bytes(tables.classes)
        self.n_classes = max(self.class_of) + 1
        self.starts, self.ranks, self.same = tables.starts, tables.ranks, tables.same
        self._places = places or {}  # by index in `words`
        self._reaches: dict[int, Reach] = {}

    @property
    def held_bytes(self) -> int:
        """The memory of the tables and of what was read from them, roughly."""
        return self.tables.n_bytes + PLACE_BYTES * (len(self._places) + len(self._reaches))

    def place(self, state: int) -> Place:
        """A state's edges, decoded on first use: texts reach few of a large grammar's states."""
        at = self.tables.at[state]
        found = self._places.get(at)
        if found is None:
            found = self._places[at] = place_at(self.tables.words, at)
        return found

    def chain(self, state: int) -> tuple[int, int]:
        """The innermost bounded repetition around a state: distance to the next copy, copies from here on."""
        return self.tables.strides[state], self.tables.copies[state]

    def rule_of(self, state: int) -> int:
        """The rule that a state belongs to."""
        return bisect_right(self.starts, state) - 1

    def reach(self, state: int) -> Reach:
        """The closure of a state, computed on first use."""
        found = self._reaches.get(state)
        if found is None:
            found = self._reaches[state] = self._reach(state)
        return found

    def _reach(self, start: int) -> Reach:
        reading, calls = list[int](), dict[tuple[int, int], None]()
        nullable = self.tables.nullable
        todo, seen = [start], {start}
        while todo:
            state = todo.pop()
            place = self.place(state)
            if place.arcs or place.tokens:
                reading.append(state)
            calls.update(((rule, state + to), None) for rule, to in place.calls)
            following = {state + to for to in place.skips}
            following.update(state + to for rule, to in place.calls if nullable[rule])
            todo += following - seen
            seen |= following
        return Reach(tuple(reading), tuple(calls), self.tables.ends[self.rule_of(start)] in seen)

    @cached_property
    def follow(self) -> list[int]:
        """For each rule, the byte classes that may follow it in some text, as bits."""
        follow, callers = [0] * len(self.starts), [set[int]() for _ in self.starts]
        for rule, sites in enumerate(self._call_sites()):
            for caller, back in sites:
                reach = self.reach(back)
                follow[rule] |= self._first_of(reach)
                if reach.ends:
                    callers[rule].add(caller)
        return spread(follow, callers)

    def _call_sites(self) -> list[list[tuple[int, int]]]:
        """For each rule: (calling rule, state to return to)."""
        sites: list[list[tuple[int, int]]] = [[] for _ in self.starts]
        for state in range(len(self.same)):
            for rule, to in self.place(state).calls:
                sites[rule].append((self.rule_of(state), state + to))
        return sites

    @cached_property
    def _first(self) -> list[int]:
        """For each rule, the byte classes that it may begin with, as bits."""
        first = [0] * len(self.starts)
        for rule in sorted(range(len(first)), key=self.ranks.__getitem__, reverse=True):
            reach = self.reach(self.starts[rule])
            for callee, _ in reach.calls:
                first[rule] |= first[callee]
            first[rule] |= self._arc_bits(reach)
        return first

    def _first_of(self, reach: Reach) -> int:
        bits = self._arc_bits(reach)
        for rule, _ in reach.calls:
            bits |= self._first[rule]
        return bits

    def _arc_bits(self, reach: Reach) -> int:
        bits = 0
        for state in reach.reading:
            for byte_class, _ in self.place(state).arcs:
                bits |= 1 << byte_class
        return bits


def spread(bits: list[int], callers: list[set[int]]) -> list[int]:
    """Adds to each rule's bits those of the rules that may end with it, until nothing changes."""
    callees: list[list[int]] = [[] for _ in bits]
    for rule, found in enumerate(callers):
        for caller in found:
            callees[caller].append(rule)
    todo = list(range(len(bits)))
    while todo:
        caller = todo.pop()
        for rule in callees[caller]:
            if bits[caller] & ~bits[rule]:
                bits[rule] |= bits[caller]
                todo.append(rule)
    return bits
