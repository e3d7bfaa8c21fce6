"""A grammar compiled to a recursive transition network over byte classes, and the checks of it.

The states of a rule have consecutive numbers. An arc reads a byte of a class, a call runs another rule and
continues at its return state, a token arc reads one whole token. `configs` runs the network.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from typing import NamedTuple

from camelid.errors import RequestError
from camelid.text.grammar.bytes_nfa import Chain, Fragment, State
from camelid.text.grammar.fragments import build_fragments, too_large
from camelid.text.grammar.rules import Rules


class Place(NamedTuple):
    """A state with its byte ranges as classes, shared by equal states.

    The last number of an entry is a distance.
    """

    arcs: tuple[tuple[int, int], ...]  # byte class, distance
    skips: tuple[int, ...]
    calls: tuple[tuple[int, int], ...]  # rule, distance
    tokens: tuple[tuple[frozenset[int], bool, int], ...]


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

    def __init__(self, fragments: Mapping[str, Fragment | None], root: str) -> None:
        self.names = list(fragments)
        numbers = {name: i for i, name in enumerate(self.names)}
        self.root = numbers[root]
        self.starts: list[int] = []
        self.rule_at_end: dict[int, int] = {}  # last state of a rule -> rule
        self.same: list[int] = []
        self.chains: list[Chain | None] = []
        states: list[State] = []
        for rule, fragment in enumerate(fragments.values()):
            self.starts.append(len(states))
            states += fragment.states if fragment else [State()]
            self.same += fragment.same if fragment else [0]
            self.chains += fragment.chains if fragment else [None]
            if fragment:
                self.rule_at_end[len(states) - 1] = rule
        self.class_of, self.n_classes = byte_classes(states)
        self.places = places(states, self.class_of, numbers)
        self.nullable: set[int] = set()
        self.ranks = [0] * len(self.names)
        self._reaches: dict[int, Reach] = {}

    def rule_of(self, state: int) -> int:
        """The rule that a state belongs to."""
        return bisect_right(self.starts, state) - 1

    def reach(self, state: int) -> Reach:
        """The closure of a state, computed on first use: texts reach few of a long repetition's states."""
        found = self._reaches.get(state)
        if found is None:
            found = self._reaches[state] = self._reach(state)
        return found

    def _reach(self, start: int) -> Reach:
        reading, calls, ends = list[int](), dict[tuple[int, int], None](), False
        todo, seen = [start], {start}
        while todo:
            state = todo.pop()
            place = self.places[state]
            ends = ends or state in self.rule_at_end
            if place.arcs or place.tokens:
                reading.append(state)
            calls.update(((rule, state + to), None) for rule, to in place.calls)
            following = {state + to for to in place.skips}
            following.update(state + to for rule, to in place.calls if rule in self.nullable)
            todo += following - seen
            seen |= following
        return Reach(tuple(reading), tuple(calls), ends)

    def rank_rules(self) -> None:
        """Fills `ranks`: a rule ranks before the rules that it may begin with.

        Raises RequestError if a rule may begin with itself.
        """
        entered, left = set[int](), set[int]()
        todo = [(rule, False) for rule in range(len(self.names))]
        while todo:
            rule, is_exit = todo.pop()
            if is_exit:
                left.add(rule)
                self.ranks[rule] = -len(left)
            elif rule not in entered:
                entered.add(rule)
                todo.append((rule, True))
                todo += [(callee, False) for callee, _ in self.reach(self.starts[rule]).calls]
            elif rule not in left:
                raise self.left_recursion(rule)

    def left_recursion(self, rule: int) -> RequestError:
        return RequestError(
            f"rule {self.names[rule]!r:.80} may begin with itself before it reads anything (left "
            "recursion); write the repetition as (...)* or let the rule end with itself instead",
            field="grammar",
            rule=self.names[rule],
        )

    @cached_property
    def follow(self) -> list[int]:
        """For each rule, the byte classes that may follow it in some text, as bits."""
        follow, callers = [0] * len(self.names), [set[int]() for _ in self.names]
        for rule, sites in enumerate(self._call_sites()):
            for caller, back in sites:
                reach = self.reach(back)
                follow[rule] |= self._first_of(reach)
                if reach.ends:
                    callers[rule].add(caller)
        return spread(follow, callers)

    def _call_sites(self) -> list[list[tuple[int, int]]]:
        """For each rule: (calling rule, state to return to)."""
        sites: list[list[tuple[int, int]]] = [[] for _ in self.names]
        for state, place in enumerate(self.places):
            for rule, to in place.calls:
                sites[rule].append((self.rule_of(state), state + to))
        return sites

    @cached_property
    def _first(self) -> list[int]:
        """For each rule, the byte classes that it may begin with, as bits."""
        first = [0] * len(self.names)
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
            for byte_class, _ in self.places[state].arcs:
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


def byte_classes(states: Iterable[State]) -> tuple[bytes, int]:
    """The class of each byte value, and the number of classes: no state distinguishes bytes of one class."""
    members: list[list[int]] = [[] for _ in range(256)]
    for number, ranges in enumerate({state.ranges for state in states}):
        for i, (first, last, _) in enumerate(ranges):
            for byte in range(first, last + 1):
                members[byte].append(number << 16 | i)
    classes: dict[tuple[int, ...], int] = {}
    class_of = bytes(classes.setdefault(tuple(found), len(classes)) for found in members)
    return class_of, len(classes)


def places(states: list[State], class_of: bytes, numbers: dict[str, int]) -> list[Place]:
    known: dict[int, Place] = {}
    for state in states:
        if id(state) not in known:
            arcs = {(class_of[b], to) for first, last, to in state.ranges for b in range(first, last + 1)}
            calls = tuple((numbers[name], to) for name, to in state.calls)
            known[id(state)] = Place(tuple(sorted(arcs)), state.skips, calls, state.tokens)
    return [known[id(state)] for state in states]


def ending(network: Network, *, reading: bool) -> set[int]:
    """The rules that can end; without `reading`, the rules that match the empty text."""
    found, seen = set[int](), set(network.starts)
    waiting: dict[int, list[int]] = {}
    todo = list(network.starts)
    while todo:
        state = todo.pop()
        following = set(following_states(network, state, reading))
        for rule, to in network.places[state].calls:
            if rule in found:
                following.add(state + to)
            else:
                waiting.setdefault(rule, []).append(state + to)
        rule = network.rule_at_end.get(state)
        if rule is not None:
            found.add(rule)
            following.update(waiting.pop(rule, []))
        todo += following - seen
        seen |= following
    return found


def following_states(network: Network, state: int, reading: bool) -> Iterator[int]:
    place = network.places[state]
    yield from (state + to for to in place.skips)
    if reading:
        yield from (state + to for _, to in place.arcs)
        yield from (state + to for _, _, to in place.tokens)


def checked_network(rules: Rules, max_states: int) -> Network:
    """The network of a valid grammar. Raises RequestError as `automaton.compile_rules` does."""
    fragments = build_fragments(rules, max_states)
    if sum(len(fragment) for fragment in fragments.values() if fragment) > max_states:
        raise too_large(max_states)
    network = Network(fragments, rules.root)
    network.nullable = ending(network, reading=False)
    network.rank_rules()
    endless = set(range(len(network.names))) - ending(network, reading=True)
    if endless:
        name = network.names[network.root if network.root in endless else min(endless)]
        raise RequestError(
            f"rule {name!r:.80} can never end, so no text matches it; give it an alternative that does not "
            "refer back to it",
            field="grammar",
            rule=name,
        )
    return network
