"""Deterministic automata over code points: intersection, complement and bounds of regular languages.

A regular language is an `Expr` without `Ref` and `Tokens`. Thompson's construction, then the subset
construction (Aho, Sethi, Ullman, Compilers, §3.7); edges are ranges of code points, so the size of the
alphabet costs nothing.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Iterator
from collections.abc import Sequence as Items
from dataclasses import dataclass, field
from itertools import chain, pairwise
from typing import TypeAlias

from camelid.errors import RequestError
from camelid.text.grammar.rules import (
    MAX_CODE_POINT,
    Chars,
    Choice,
    Expr,
    Range,
    Ref,
    Repeat,
    Sequence,
    Text,
    Tokens,
    complement,
)

MAX_NFA_STATES = 60_000  # about 0.2 s natively
MAX_DFA_STATES = 4_000
MAX_DFA_EDGES = 100_000
Edge: TypeAlias = tuple[int, int, int]  # first and last code point, target state


def too_large(what: str, limit: int) -> RequestError:
    return RequestError(
        f"the pattern or bounds need more than {limit} {what}; use smaller repeats or fewer bounds together",
        field="grammar",
        limit=limit,
    )


@dataclass(frozen=True, slots=True)
class Dfa:
    """A deterministic automaton.

    States are indices, 0 is the start; the edges of a state are sorted and disjoint.
    """

    edges: tuple[tuple[Edge, ...], ...]
    final: frozenset[int]

    @property
    def is_empty(self) -> bool:
        return not self.final

    def is_free(self, state: int) -> bool:
        """True if any text may follow."""
        row = self.edges[state]
        return (
            state in self.final
            and all(target == state for _, _, target in row)
            and not complement(tuple((first, last) for first, last, _ in row))
        )

    def step(self, state: int, code_point: int) -> int | None:
        return next((t for first, last, t in self.edges[state] if first <= code_point <= last), None)

    def accepts(self, text: str) -> bool:
        state: int | None = 0
        for char in text:
            state = self.step(state, ord(char))
            if state is None:
                return False
        return state in self.final


@dataclass(slots=True)
class Nfa:
    """A nondeterministic automaton: edges and empty moves by state."""

    edges: list[list[Edge]] = field(default_factory=lambda: [[]])
    empty: list[list[int]] = field(default_factory=lambda: [[]])

    def state(self) -> int:
        if len(self.edges) >= MAX_NFA_STATES:
            raise too_large("states", MAX_NFA_STATES)
        self.edges.append([])
        self.empty.append([])
        return len(self.edges) - 1

    def move(self, source: int, ranges: Iterable[Range]) -> int:
        target = self.state()
        self.edges[source].extend((first, last, target) for first, last in ranges)
        return target

    def add(self, expr: Expr, at: int) -> int:
        """Adds `expr` behind state `at` and returns the state where it ends."""
        match expr:
            case Text(text):
                for char in text:
                    at = self.move(at, [(ord(char), ord(char))])
                return at
            case Chars(ranges):
                return self.move(at, ranges)
            case Sequence(parts):
                for part in parts:
                    at = self.add(part, at)
                return at
            case Choice(parts):
                return self.join(self.add(part, self.fork(at)) for part in parts)
            case Repeat(part, least, most):
                return self.repeat(part, least, most, at)
            case Ref() | Tokens():
                raise TypeError("a regular language has no references and no tokens")

    def fork(self, at: int) -> int:
        target = self.state()
        self.empty[at].append(target)
        return target

    def join(self, ends: Iterable[int]) -> int:
        sources = list(ends)
        target = self.state()
        for source in sources:
            self.empty[source].append(target)
        return target

    def repeat(self, part: Expr, least: int, most: int | None, at: int) -> int:
        for _ in range(least):
            at = self.add(part, at)
        if most is None:
            loop = self.fork(at)
            self.empty[self.add(part, loop)].append(loop)
            return self.fork(loop)
        ends = [at]
        for _ in range(most - least):
            ends.append(self.add(part, ends[-1]))
        return self.join(ends)

    def closure(self, states: Iterable[int]) -> frozenset[int]:
        seen = set(states)
        stack = [state for state in seen if self.empty[state]]
        while stack:
            fresh = [target for target in self.empty[stack.pop()] if target not in seen]
            seen.update(fresh)
            stack.extend(fresh)
        return frozenset(seen)

    def least_characters(self, end: int) -> int:
        """The least number of characters that lead to `end`; 0 if none do.

        A state is entered by empty moves alone or from one state alone, so its first distance is the least.
        """
        distances, queue = {0: 0}, deque([0])
        while queue and end not in distances:
            state = queue.popleft()
            for target in self.empty[state]:
                if target not in distances:
                    distances[target] = distances[state]
                    queue.appendleft(target)
            for _, _, target in self.edges[state]:
                if target not in distances:
                    distances[target] = distances[state] + 1
                    queue.append(target)
        return distances.get(end, 0)


def split(edges: Iterable[Edge]) -> Iterator[tuple[int, int, frozenset[int]]]:
    """Cuts overlapping edges at each other's borders: (first, last, all targets), sorted and disjoint."""
    targets_of: dict[Range, list[int]] = {}
    for first, last, target in edges:
        targets_of.setdefault((first, last), []).append(target)
    starts: dict[int, set[Range]] = {}
    stops: dict[int, set[Range]] = {}
    for first, last in targets_of:
        starts.setdefault(first, set()).add((first, last))
        stops.setdefault(last + 1, set()).add((first, last))
    active = set[Range]()
    for border, following in pairwise(sorted(starts.keys() | stops.keys())):
        active = (active | starts.get(border, set())) - stops.get(border, set())
        if active:
            yield border, following - 1, frozenset(chain.from_iterable(map(targets_of.__getitem__, active)))


def dfa_of(expr: Expr) -> Dfa:
    """The automaton of a regular language. Raises RequestError beyond MAX_DFA_STATES and MAX_DFA_EDGES."""
    nfa = Nfa()
    end = nfa.add(expr, 0)
    check_size(nfa.least_characters(end) + 1, 0)  # the states on the way of a shortest text all differ
    start = nfa.closure([0])
    index = {start: 0}
    queue = deque([start])
    edges: list[tuple[Edge, ...]] = []
    closures: dict[frozenset[int], frozenset[int]] = {}
    n_edges = 0
    while queue:
        row: list[Edge] = []
        for first, last, targets in split(edge for state in queue.popleft() for edge in nfa.edges[state]):
            if targets not in closures:
                closures[targets] = nfa.closure(targets)
            group = closures[targets]
            if group not in index:
                index[group] = len(index)
                queue.append(group)
            row.append((first, last, index[group]))
        n_edges += len(row)
        check_size(len(index), n_edges)
        edges.append(tuple(row))
    return trimmed(edges, {number for group, number in index.items() if end in group})


def check_size(n_states: int, n_edges: int) -> None:
    if n_states > MAX_DFA_STATES:
        raise too_large("states", MAX_DFA_STATES)
    if n_edges > MAX_DFA_EDGES:
        raise too_large("edges", MAX_DFA_EDGES)


def trimmed(edges: Items[Items[Edge]], final: set[int]) -> Dfa:
    """The automaton without states that reach no final state; adjacent edges to one state are merged."""
    sources: dict[int, list[int]] = {}
    for source, row in enumerate(edges):
        for _, _, target in row:
            sources.setdefault(target, []).append(source)
    live = set(final)
    stack = list(final)
    while stack:
        fresh = [source for source in sources.get(stack.pop(), ()) if source not in live]
        live.update(fresh)
        stack.extend(fresh)
    numbered = [0, *sorted(live - {0})]
    number = {state: i for i, state in enumerate(numbered)}
    rows = [merged((a, b, number[t]) for a, b, t in edges[state] if t in live) for state in numbered]
    return Dfa(tuple(rows), frozenset(number[state] for state in final))


def merged(edges: Iterable[Edge]) -> tuple[Edge, ...]:
    row: list[Edge] = []
    for first, last, target in edges:
        if row and row[-1][1] + 1 == first and row[-1][2] == target:
            row[-1] = (row[-1][0], last, target)
        else:
            row.append((first, last, target))
    return tuple(row)


def overlaps(left: Items[Edge], right: Items[Edge]) -> Iterator[tuple[int, int, int, int]]:
    """(first, last, left target, right target) for each pair of edges with characters in common."""
    i = j = 0
    while i < len(left) and j < len(right):
        first, last = max(left[i][0], right[j][0]), min(left[i][1], right[j][1])
        if first <= last:
            yield first, last, left[i][2], right[j][2]
        if left[i][1] < right[j][1]:
            i += 1
        else:
            j += 1


def intersect(left: Dfa, right: Dfa) -> Dfa:
    """The texts of both languages."""
    index = {(0, 0): 0}
    queue = deque(index)
    edges: list[tuple[Edge, ...]] = []
    n_edges = 0
    while queue:
        a, b = queue.popleft()
        row: list[Edge] = []
        for first, last, *pair in overlaps(left.edges[a], right.edges[b]):
            key = (pair[0], pair[1])
            if key not in index:
                index[key] = len(index)
                queue.append(key)
            row.append((first, last, index[key]))
        n_edges += len(row)
        check_size(len(index), n_edges)
        edges.append(tuple(row))
    final = {i for (a, b), i in index.items() if a in left.final and b in right.final}
    return trimmed(edges, final)


def without(dfa: Dfa) -> Dfa:
    """The complement: every text that `dfa` does not accept."""
    sink = len(dfa.edges)
    edges = [tuple(filled(row, sink)) for row in (*dfa.edges, ())]
    return trimmed(edges, set(range(sink + 1)) - dfa.final)


def filled(row: Iterable[Edge], sink: int) -> Iterator[Edge]:
    """The edges of a state, the gaps between them filled with edges to the sink."""
    at = 0
    for first, last, target in row:
        if at < first:
            yield at, first - 1, sink
        yield first, last, target
        at = last + 1
    if at <= MAX_CODE_POINT:
        yield at, MAX_CODE_POINT, sink


def words(texts: Iterable[str], max_states: int = MAX_DFA_STATES) -> Dfa:
    """The automaton of a finite set of texts, as a trie."""
    children: list[dict[int, int]] = [{}]
    final: set[int] = set()
    for text in texts:
        at = 0
        for char in text:
            if ord(char) not in children[at]:
                if len(children) >= max_states:
                    raise too_large("characters", max_states)
                children[at][ord(char)] = len(children)
                children.append({})
            at = children[at][ord(char)]
        final.add(at)
    return trimmed([[(c, c, t) for c, t in sorted(row.items())] for row in children], final)


def lengths(least: int, most: int | None) -> Dfa:
    """The texts of `least` to `most` characters."""
    check_size(max(least, most or 0) + 1, 0)
    last = least if most is None else most
    rows: list[tuple[Edge, ...]] = [((0, MAX_CODE_POINT, i + 1),) for i in range(last)]
    rows.append(((0, MAX_CODE_POINT, last),) if most is None else ())
    return trimmed(rows, set(range(least, last + 1)))


def longest(dfa: Dfa) -> int | None:
    """The length of the longest text; None if unbounded. Kahn's topological order detects a cycle."""
    waiting = Counter(target for row in dfa.edges for _, _, target in row)
    length = [0] * len(dfa.edges)
    ready = [] if waiting[0] else [0]
    n_done = 0
    while ready:
        state = ready.pop()
        n_done += 1
        for _, _, target in dfa.edges[state]:
            length[target] = max(length[target], length[state] + 1)
            waiting[target] -= 1
            if not waiting[target]:
                ready.append(target)
    return max((length[state] for state in dfa.final), default=0) if n_done == len(length) else None


def shortest(dfa: Dfa) -> int:
    """The length of the shortest text of a language that is not empty."""
    seen, states, n = {0}, {0}, 0
    while not states & dfa.final:
        states = {target for state in states for _, _, target in dfa.edges[state]} - seen
        seen |= states
        n += 1
    return n


def either(left: Dfa, right: Dfa) -> Dfa:
    """The union: texts of one language or the other."""
    return without(intersect(without(left), without(right)))
