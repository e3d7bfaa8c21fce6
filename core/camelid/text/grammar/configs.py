"""Configs: all positions of a grammar after some text as one value, with the transitions cached.

A config is a set of (state, node). A node stands for all calls of a rule at one position: pairs of a state to
return to and the node of the caller, so ambiguous parses share nodes (a graph-structured stack, as in GLL
parsing). Equal configs are one object while the cache lasts, so the configs reached so far form a
deterministic automaton that is built lazily.
"""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heappop, heappush
from typing import TypeAlias

from camelid.errors import RequestError
from camelid.text.grammar.network import Network

MAX_CONFIGS = 20_000  # in the cache; a full cache is emptied
MAX_ITEMS = 20_000  # in one config or node
# Depth of nested rules, as in nested brackets. Freeing a chain of nodes recurses, and Pyodide's stack ends
# before 2,000 nodes.
MAX_DEPTH = 1_000
# Held by a config, by each of its items, and by the moves of one byte class, roughly.
CONFIG_BYTES, ITEM_BYTES, MOVES_BYTES = 700, 150, 300

Item: TypeAlias = "tuple[int, Node]"
DONE = -1  # the state to return to when the whole grammar ends


class Node:
    """The return positions of a rule call.

    Compared by identity: `Configs.node` makes equal nodes one object.
    """

    __slots__ = ("depth", "links")

    def __init__(self, links: frozenset[Item]) -> None:
        self.links = links
        self.depth: int = 1 + max((node.depth for _, node in links), default=0)


ROOT = Node(frozenset())
ROOT.links = frozenset({(DONE, ROOT)})


class Config:
    """A set of positions in the grammar.

    items: states that read a byte or a token next. complete: True if the text may end here.
    """

    __slots__ = ("complete", "items", "moves", "next")

    def __init__(self, items: frozenset[Item], complete: bool, n_classes: int) -> None:
        self.items = items
        self.complete = complete
        self.next: list[Config | None] = [None] * n_classes  # by byte class; None: not computed yet
        self.moves: dict[int, set[Item]] | None = None


class Configs:
    """The configs of one automaton and the transitions between them."""

    def __init__(self, network: Network) -> None:
        self.network = network
        self._nodes: dict[frozenset[Item], Node] = {ROOT.links: ROOT}
        self._configs: dict[tuple[frozenset[Item], bool], Config] = {}
        self._closed: dict[frozenset[Item], Config] = {}
        self.held_bytes = 0  # by the cache, roughly
        self.dead = Config(frozenset(), False, network.n_classes)
        self.dead.next = [self.dead] * network.n_classes
        self.start = self.closed([(network.starts[network.root], ROOT)])

    def step(self, config: Config, byte_class: int) -> Config:
        """The config after one more byte; `dead` if the grammar has no such text.

        Callers try `config.next` first.
        """
        moves = config.moves
        if moves is None:
            moves = config.moves = self._moves(config)
            self.held_bytes += MOVES_BYTES * len(moves)
        targets = moves.get(byte_class)
        found = config.next[byte_class] = self.closed(targets) if targets else self.dead
        return found

    def read(self, config: Config, data: bytes) -> Config:
        """The config after some bytes, given as byte classes."""
        for byte_class in data:
            config = config.next[byte_class] or self.step(config, byte_class)
        return config

    def read_token(self, config: Config, token_id: int, data: bytes) -> Config:
        """The config after a whole token: by its bytes, if it has any, and by token arcs."""
        place = self.network.place
        targets = [
            (state + to, node)
            for state, node in config.items
            for token_ids, negated, to in place(state).tokens
            if (token_id in token_ids) != negated
        ]
        by_bytes = self.read(config, data) if data else self.dead
        if not targets:
            return by_bytes
        by_token = self.closed(targets)
        return self.config(by_token.items | by_bytes.items, by_token.complete or by_bytes.complete)

    def config(self, items: frozenset[Item], complete: bool) -> Config:
        key = (items, complete)
        found = self._configs.get(key)
        if found is None:
            if len(self._configs) >= MAX_CONFIGS:
                self._forget()
            found = self._configs[key] = Config(items, complete, self.network.n_classes)
            self.held_bytes += CONFIG_BYTES + 8 * self.network.n_classes + ITEM_BYTES * len(items)
        return found

    def node(self, links: frozenset[Item]) -> Node:
        found = self._nodes.get(links)
        if found is None:
            found = self._nodes[links] = Node(links)
        return found

    def closed(self, kernel: Iterable[Item]) -> Config:
        """The config of some items and of all items reachable from them without reading.

        Raises RequestError if the grammar is too ambiguous to follow.
        """
        key = frozenset(kernel)
        found = self._closed.get(key)
        if found is None:
            found = self._close(key)
            if len(self._closed) >= MAX_CONFIGS:
                self._closed.clear()
            self._closed[key] = found
        return found

    def _close(self, kernel: frozenset[Item]) -> Config:
        items, calls, complete = set[Item](), dict[int, set[Item]](), False
        seen, todo = set(kernel), list(kernel)
        while todo:
            state, node = todo.pop()
            self._enter(state, node, items, calls)
            if self.network.reach(state).ends:
                complete = complete or (DONE, ROOT) in node.links
                fresh = node.links - seen - {(DONE, ROOT)}
                seen |= fresh
                todo += fresh
                self._check(len(seen))
        self._call(calls, items)
        self._check(len(items))
        return self.config(frozenset(items), complete)

    def _enter(self, state: int, node: Node, items: set[Item], calls: dict[int, set[Item]]) -> None:
        """Adds the reading states and the rule calls of a state; a tail call returns to the caller."""
        reach = self.network.reach(state)
        items.update((reading, node) for reading in reach.reading)
        for rule, back in reach.calls:
            links = node.links if self.network.reach(back).only_ends else ((back, node),)
            calls.setdefault(rule, set()).update(links)

    def _call(self, calls: dict[int, set[Item]], items: set[Item]) -> None:
        """Enters each called rule once, after every rule that may call it here."""
        starts, ranks = self.network.starts, self.network.ranks
        queue = sorted((ranks[rule], rule) for rule in calls)
        while queue:
            _, rule = heappop(queue)
            links = calls[rule]
            self._check(len(links))
            known, node = set(calls), self.node(frozenset(links))
            self._check_depth(node)
            self._enter(starts[rule], node, items, calls)
            for other in calls.keys() - known:
                heappush(queue, (ranks[other], other))

    def _moves(self, config: Config) -> dict[int, set[Item]]:
        place = self.network.place
        moves: dict[int, set[Item]] = {}
        for state, node in config.items:
            for byte_class, to in place(state).arcs:
                moves.setdefault(byte_class, set()).add((state + to, node))
        return moves

    def _check(self, n_items: int) -> None:
        if n_items > MAX_ITEMS:
            raise RequestError(
                f"the grammar is too ambiguous: more than {MAX_ITEMS:,} ways to read the text so far; "
                "remove alternatives that match the same text",
                field="grammar",
                limit=MAX_ITEMS,
            )

    def _check_depth(self, node: Node) -> None:
        if node.depth > MAX_DEPTH:
            raise RequestError(
                f"the text nests the grammar's rules deeper than {MAX_DEPTH:,}; write lists as repetitions "
                "and limit the nesting",
                field="grammar",
                limit=MAX_DEPTH,
            )

    def _forget(self) -> None:
        """Empties the caches. Configs that matchers still reference stay valid and lead to new configs."""
        self._part()
        self.held_bytes = 0
        self._configs.clear()
        self._closed.clear()
        self._nodes = {ROOT.links: ROOT}

    def _part(self) -> None:
        """Unlinks the configs from each other.

        Freeing a long chain of configs recurses and overflows Pyodide's stack.
        """
        for config in self._configs.values():
            config.next, config.moves = [None] * len(config.next), None

    def __del__(self) -> None:
        self._part()
