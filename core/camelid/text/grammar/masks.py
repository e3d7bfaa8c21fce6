"""Which tokens may come next: sets of tokens per config, put together from parts that many configs share.

The tokens that keep within a rule depend on its states alone, not on who called it; the few that run past
the rule's end are kept by the text that is left of them, to be tried on each caller. Both are remembered.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeAlias, TypeVar

from camelid.text.grammar.configs import DONE, ROOT, Config, Configs, Item, Node
from camelid.text.grammar.network import Network
from camelid.text.grammar.trie import ASCII, Tokens, TokenTable, Trie

K = TypeVar("K")
V = TypeVar("V")
States: TypeAlias = frozenset[int]
Exit: TypeAlias = tuple[int, int, int]  # keys low … high - 1 of a trie, and how many bytes are read
MAX_MASK_BYTES, MIN_KEPT = 64 << 20, 256  # of each kind of set that is remembered
FEW = 8  # a set of less than this part of the tokens is not worth a trie of the others
FEW_STATES = 64  # of more, as in long lists of words, hardly one loops
# Well-formed UTF-8 beyond ASCII (Unicode 16, table 3-7), as ranges of byte values.
TAIL = (0x80, 0xBF)
SHAPES = (
    ((0xC2, 0xDF), TAIL), ((0xE0, 0xE0), (0xA0, 0xBF), TAIL), ((0xE1, 0xEC), TAIL, TAIL),
    ((0xED, 0xED), (0x80, 0x9F), TAIL), ((0xEE, 0xEF), TAIL, TAIL), ((0xF0, 0xF0), (0x90, 0xBF), TAIL, TAIL),
    ((0xF1, 0xF3), TAIL, TAIL, TAIL), ((0xF4, 0xF4), (0x80, 0x8F), TAIL, TAIL),
)  # fmt: skip


class Ahead:
    """kept: tokens during which a set of states stays within its rule. exits: what is left of others."""

    __slots__ = ("exits", "kept")

    def __init__(self, kept: int, exits: Trie) -> None:
        self.kept, self.exits = kept, exits


class Masks:
    """The masks of one automaton over one vocabulary."""

    def __init__(self, network: Network, configs: Configs, table: TokenTable) -> None:
        self.network, self.configs, self.table = network, configs, table
        self.max_kept = max(MIN_KEPT, MAX_MASK_BYTES // (table.vocab_size // 8 + 64))
        self._masks: dict[Config, int] = {}
        self._ahead: dict[tuple[States, bool], Ahead] = {}
        self._past: dict[tuple[Ahead, Node], int] = {}

    def mask(self, config: Config) -> int:
        """The tokens that may follow, as bits."""
        return remembered(self._masks, config, self._mask, self.max_kept)

    def _mask(self, config: Config) -> int:
        by_node: dict[Node, list[int]] = {}
        for state, node in config.items:
            by_node.setdefault(node, []).append(state)
        bits = self.table.eos_bits if config.complete else 0
        for node, found in by_node.items():
            states = frozenset(found)
            # Long tokens can tell the copies of a long repetition apart, short ones cannot.
            same = frozenset(state + self.network.same[state] for state in states)
            for key in ((same, True), (states, False)):
                ahead = remembered(self._ahead, key, self._look_ahead, self.max_kept)
                bits |= ahead.kept
                if ahead.exits.keys:
                    bits |= remembered(self._past, (ahead, node), self._past_end, self.max_kept)
            bits |= self._by_token(states)
        return bits

    def _by_token(self, states: States) -> int:
        bits = 0
        for state in states:
            for token_ids, negated, _ in self.network.places[state].tokens:
                known = (token_id for token_id in token_ids if 0 <= token_id < self.table.vocab_size)
                named = self.table.bits(known) & self.table.any_token
                bits |= self.table.any_token & ~named if negated else named
        return bits

    def _look_ahead(self, key: tuple[States, bool]) -> Ahead:
        states, is_short = key
        tokens = self.table.short if is_short else self.table.long
        config, follow = self._within(states), self._follow(states)
        kept, tries = self._split(tokens, *self._runs(states))
        left = dict[bytes, list[int]]()
        for trie in tries:
            exits: list[Exit] = []
            kept |= self.table.bits(self._walk(trie, config, exits))
            if any(follow):
                collect(left, trie, exits, follow)
        suffixes = sorted(left)
        return Ahead(kept, Trie(suffixes, [tuple(left[suffix]) for suffix in suffixes]))

    def _split(self, tokens: Tokens, kept: int, alike: int) -> tuple[int, list[Trie]]:
        """Some of the kept tokens, and tries of all others: `alike` are those written as the kept are.

        What is outside `alike` is the same along a whole repetition, so its trie is worth remembering; so is
        the trie of all tokens.
        """
        kept, alike, few = kept & tokens.all, alike & tokens.all, len(tokens.trie.keys) // FEW
        longer = alike & ~kept
        if alike.bit_count() <= few or longer.bit_count() > few:
            return kept, [tokens.trie]
        outside = tokens.only(tokens.all & ~alike)
        return kept, [outside, tokens.chosen(longer)] if longer else [outside]

    def _within(self, states: Iterable[int]) -> Config:
        """The config of states whose rule was called by nobody: complete where the rule ends."""
        return self.configs.config(frozenset((state, ROOT) for state in states), False)

    def _walk(self, trie: Trie, config: Config, exits: list[Exit] | None = None) -> list[int]:
        """Tokens of the trie that the grammar can read from here; `exits` takes where the rule may end."""
        class_of, step, dead = self.network.class_of, self.configs.step, self.configs.dead
        keys, lows, highs, bytes_in = trie.keys, trie.lows, trie.highs, trie.bytes_in
        token_ids: list[int] = []
        todo: list[tuple[int, Config]] = [(0, config)] if keys else []
        while todo:
            node, config = todo.pop()
            first = trie.firsts[node] or trie.expand(node)
            for child in range(first, trie.ends[node]):
                byte_class = class_of[bytes_in[child]]
                after = config.next[byte_class] or step(config, byte_class)
                if after is dead:
                    continue
                if after.complete and exits is not None:
                    exits.append((lows[child], highs[child], trie.depths[child]))
                low = lows[child]
                if highs[child] - low == 1:
                    token_ids += self._tail(trie, child, after, exits)
                    continue
                if len(keys[low]) == trie.depths[child]:
                    token_ids += trie.token_ids[low]
                todo.append((child, after))
        return token_ids

    def _tail(self, trie: Trie, leaf: int, config: Config, exits: list[Exit] | None) -> tuple[int, ...]:
        """`_walk` down the rest of the only key that is left."""
        class_of, step, dead = self.network.class_of, self.configs.step, self.configs.dead
        index = trie.lows[leaf]
        key = trie.keys[index]
        for depth in range(trie.depths[leaf], len(key)):
            byte_class = class_of[key[depth]]
            config = config.next[byte_class] or step(config, byte_class)
            if config is dead:
                return ()
            if config.complete and exits is not None:
                exits.append((index, index + 1, depth + 1))
        return trie.token_ids[index]

    def _follow(self, states: States) -> list[bool]:
        """For each byte value whether it may come after the rules of these states."""
        network = self.network
        classes = 0
        for rule in {network.rule_of(state) for state in states}:
            classes |= network.follow[rule]
        return [bool(classes >> byte_class & 1) for byte_class in network.class_of]

    def _past_end(self, key: tuple[Ahead, Node]) -> int:
        ahead, node = key
        config = self.configs.closed(link for link in node.links if link[0] != DONE)
        return self.table.bits(self._walk(ahead.exits, config))

    def _runs(self, states: States) -> tuple[int, int]:
        """Tokens that are surely kept since each of their characters leads back to the same state.

        In a bounded repetition it leads to that state of the next copy, while copies are left: then the
        second set also has the tokens that are too long.
        """
        kept = alike = 0
        for state in states if len(states) <= FEW_STATES else ():
            tokens = self._written(state, 0)
            kept, alike = kept | tokens, alike | tokens
            chain = self.network.chains[state]
            if chain and chain[1] > 1:
                tokens = self._written(state, chain[0])
                kept, alike = kept | tokens & self.table.of_length(chain[1]), alike | tokens
        return kept, alike

    def _written(self, state: int, distance: int) -> int:
        """Tokens of those characters that lead from the state to the one at a distance."""
        start, goal = self._within([state]), (state + distance, ROOT)
        class_of = self.network.class_of
        classes = {c for c, _ in self.network.places[state].arcs if self._leads(start, [{c}], goal)}
        characters = frozenset(byte for byte in range(ASCII) if class_of[byte] in classes)
        others = all(
            self._leads(start, [set(class_of[low : high + 1]) for low, high in shape], goal)
            for shape in SHAPES
        )
        return self.table.written_in(characters, others=others) if characters or others else 0

    def _leads(self, start: Config, reading: list[set[int]], goal: Item) -> bool:
        """Whether all sequences of bytes of these classes lead to `goal`, among others."""
        configs = {start}
        for classes in reading:
            configs = {config.next[c] or self.configs.step(config, c) for config in configs for c in classes}
            if self.configs.dead in configs:
                return False
        return all(goal in config.items for config in configs)


def collect(left: dict[bytes, list[int]], trie: Trie, exits: list[Exit], follow: list[bool]) -> None:
    """Add what is left of tokens past the exits to `left`, where it begins with a byte that may follow."""
    for low, high, depth in exits:
        for i in range(low, high):
            key = trie.keys[i]
            if len(key) > depth and follow[key[depth]]:
                left.setdefault(key[depth:], []).extend(trie.token_ids[i])


def remembered(cache: dict[K, V], key: K, compute: Callable[[K], V], limit: int) -> V:
    """The value of a key, computed once; a cache that has reached its limit is emptied."""
    found = cache.get(key)
    if found is None:
        found = compute(key)
        if len(cache) >= limit:
            cache.clear()
        cache[key] = found
    return found
