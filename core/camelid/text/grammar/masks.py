"""Token masks per config, composed of cached parts that many configs share.

The tokens that stay within a rule depend on the rule's states alone, not on its callers. A token that runs
past the rule's end is stored by its remaining text, which is tried on each caller. Both results are cached.
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
Reading: TypeAlias = list[set[int]]  # byte classes of the first byte, of the second, and so on
Run: TypeAlias = tuple[list[Reading], int]
Exit: TypeAlias = tuple[int, int, int]  # trie keys low … high - 1, and the number of bytes read
MAX_MASK_BYTES, MIN_CACHED = 64 << 20, 256  # limits of each cache
MAX_SUFFIXES = 500_000
SUFFIX_BYTES = 150  # of a suffix with its tokens, roughly
FEW = 8  # a set of fewer than 1/8 of the tokens does not pay for a trie of the others
FEW_STATES = 64  # larger sets, as in long word lists, hardly have a loop
# Well-formed UTF-8 beyond ASCII (Unicode 16, table 3-7), as ranges of byte values.
TAIL = (0x80, 0xBF)
SHAPES = (
    ((0xC2, 0xDF), TAIL), ((0xE0, 0xE0), (0xA0, 0xBF), TAIL), ((0xE1, 0xEC), TAIL, TAIL),
    ((0xED, 0xED), (0x80, 0x9F), TAIL), ((0xEE, 0xEF), TAIL, TAIL), ((0xF0, 0xF0), (0x90, 0xBF), TAIL, TAIL),
    ((0xF1, 0xF3), TAIL, TAIL, TAIL), ((0xF4, 0xF4), (0x80, 0x8F), TAIL, TAIL),
)  # fmt: skip


class Ahead:
    """The tokens readable from a set of states.

    `allowed`: tokens that stay within the rule. `exits`: the text of other tokens after the rule's end.
    """

    __slots__ = ("allowed", "exits")

    def __init__(self, allowed: int, exits: Trie) -> None:
        self.allowed, self.exits = allowed, exits


class Masks:
    """The masks of one automaton over one vocabulary."""

    def __init__(self, network: Network, configs: Configs, table: TokenTable) -> None:
        self.network, self.configs, self.table = network, configs, table
        self.max_cached = max(MIN_CACHED, MAX_MASK_BYTES // (table.vocab_size // 8 + 64))
        self._masks: dict[Config, int] = {}
        self._ahead: dict[tuple[States, bool], Ahead] = {}
        self._runs_by_state: dict[tuple[int, int], Run] = {}
        self._n_suffixes = 0
        self._past: dict[tuple[Ahead, Node], int] = {}

    @property
    def held_bytes(self) -> int:
        """The memory of the caches, roughly."""
        n_sets = len(self._masks) + len(self._ahead) + len(self._past) + len(self._runs_by_state)
        return n_sets * (self.table.vocab_size // 8 + 64) + self._n_suffixes * SUFFIX_BYTES

    def knows(self, config: Config) -> bool:
        """True if the mask of a config is in the cache."""
        return config in self._masks

    def keep(self, config: Config, bits: int) -> None:
        """Caches a mask that another process computed."""
        remembered(self._masks, config, lambda _: bits, self.max_cached)

    def mask(self, config: Config) -> int:
        """The allowed tokens of a config, as bits."""
        return remembered(self._masks, config, self._mask, self.max_cached)

    def _mask(self, config: Config) -> int:
        by_node: dict[Node, list[int]] = {}
        for state, node in config.items:
            by_node.setdefault(node, []).append(state)
        bits = self.table.eos_bits if config.complete else 0
        for node, found in by_node.items():
            states = frozenset(found)
            # Only long tokens can distinguish the copies of a long repetition.
            same = frozenset(state + self.network.same[state] for state in states)
            for key in ((same, True), (states, False)):
                ahead = remembered(self._ahead, key, self._look_ahead, self.max_cached)
                bits |= ahead.allowed
                if ahead.exits.keys:
                    bits |= remembered(self._past, (ahead, node), self._past_end, self.max_cached)
            bits |= self._by_token(states)
        return bits

    def _by_token(self, states: States) -> int:
        bits = 0
        for state in states:
            for token_ids, negated, _ in self.network.place(state).tokens:
                known = (token_id for token_id in token_ids if 0 <= token_id < self.table.vocab_size)
                named = self.table.bits(known) & self.table.any_token
                bits |= self.table.any_token & ~named if negated else named
        return bits

    def _look_ahead(self, key: tuple[States, bool]) -> Ahead:
        states, is_short = key
        tokens = self.table.short if is_short else self.table.long
        config, classes = self._within(states), self._follow(states)
        follow = [bool(classes >> byte_class & 1) for byte_class in self.network.class_of]
        allowed, tries = self._split(states, tokens)
        left = dict[bytes, list[int]]()
        for trie in tries:
            exits: list[Exit] = []
            allowed |= self.table.bits(self._walk(trie, config, exits))
            if classes:
                collect(left, trie, exits, follow)
        suffixes = sorted(left)
        self._make_room(len(suffixes))
        return Ahead(allowed, Trie(suffixes, [tuple(left[suffix]) for suffix in suffixes]))

    def _make_room(self, n_suffixes: int) -> None:
        """Empties the caches beyond MAX_SUFFIXES in total: some sets of states have very many suffixes."""
        self._n_suffixes += n_suffixes
        if self._n_suffixes > MAX_SUFFIXES:
            self._ahead.clear()
            self._past.clear()
            self._n_suffixes = n_suffixes

    def _split(self, states: States, tokens: Tokens) -> tuple[int, list[Trie]]:
        """Splits the tokens: a set of allowed tokens, and tries of the tokens to be tried.

        The trie of the tokens outside `alike` is the same along a whole repetition, so it is cached.
        """
        alike, allowed, doubtful = (found & tokens.all for found in self._runs(states))
        few = len(tokens.trie.keys) // FEW
        if alike.bit_count() <= few or doubtful.bit_count() > few:
            return allowed, [tokens.trie]
        outside = tokens.only(tokens.all & ~alike)
        return allowed, [outside, tokens.chosen(doubtful)] if doubtful else [outside]

    def _within(self, states: Iterable[int]) -> Config:
        """The config of states whose rule has no caller: complete where the rule ends."""
        return self.configs.config(frozenset((state, ROOT) for state in states), False)

    def _walk(self, trie: Trie, config: Config, exits: list[Exit] | None = None) -> list[int]:
        """The tokens of a trie that the grammar reads from a config; `exits` collects the rule's ends."""
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
        """`_walk` along the rest of the only key that remains."""
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

    def _follow(self, states: States) -> int:
        """The byte classes that may follow the rules of these states, as bits."""
        classes = 0
        for rule in {self.network.rule_of(state) for state in states}:
            classes |= self.network.follow[rule]
        return classes

    def _past_end(self, key: tuple[Ahead, Node]) -> int:
        ahead, node = key
        config = self.configs.closed(link for link in node.links if link[0] != DONE)
        return self.table.bits(self._walk(ahead.exits, config))

    def _runs(self, states: States) -> tuple[int, int, int]:
        """Tokens written in characters that lead back to one of the states: all, allowed and doubtful ones.

        In a bounded repetition the characters lead to the same state of the next copy while copies remain: a
        token that is too long is refused or, if another state may read on, doubtful.
        """
        alike = allowed = doubtful = 0
        for state in states if len(states) <= FEW_STATES else ():
            chars, tokens = self._run(state, 0)
            alike, allowed = alike | tokens, allowed | tokens
            stride, n_left = self.network.chain(state)
            if n_left > 1:
                chars, tokens = self._run(state, stride)
                short = tokens & self.table.of_length(n_left)
                alike, allowed = alike | tokens, allowed | short
                if tokens != short and not self._is_barred(states, chars, n_left + 1):
                    doubtful |= tokens
        return alike, allowed, doubtful & ~allowed

    def _run(self, state: int, distance: int) -> Run:
        """The characters that lead from a state to the one at `distance`, and the tokens written in them."""
        key = (state + self.network.same[state], distance)
        return remembered(self._runs_by_state, key, self._find_run, self.max_cached)

    def _find_run(self, key: tuple[int, int]) -> Run:
        """Computes `_run`. Characters beyond ASCII count only if all of them lead to the goal."""
        state, distance = key
        start, goal = self._within([state]), (state + distance, ROOT)
        class_of = self.network.class_of
        chars: list[Reading] = [[{c}] for c in {c for c, _ in self.network.place(state).arcs}]
        chars = [char for char in chars if self._leads(start, char, goal)]
        found = {c for [classes] in chars for c in classes}
        ascii_bytes = frozenset(byte for byte in range(ASCII) if class_of[byte] in found)
        shapes = [[set(class_of[low : high + 1]) for low, high in shape] for shape in SHAPES]
        others = all(self._leads(start, shape, goal) for shape in shapes)
        tokens = self.table.written_in(ascii_bytes, others=others) if ascii_bytes or others else 0
        return chars + shapes if others else chars, tokens

    def _leads(self, start: Config, reading: Reading, goal: Item) -> bool:
        """True if every byte sequence of these classes leads to `goal`, possibly among other items."""
        found = self._after({start}, reading)
        return self.configs.dead not in found and all(goal in config.items for config in found)

    def _is_barred(self, states: States, chars: list[Reading], n_chars: int) -> bool:
        """True if no text of `n_chars` of these characters is readable; False also if unproved."""
        opening = 0
        for char in chars:
            for byte_class in char[0]:
                opening |= 1 << byte_class
        goes_on_outside = opening & self._follow(states)
        found = {self._within(states)}
        for _ in range(n_chars):
            found = {config for char in chars for config in self._after(found, char)} - {self.configs.dead}
            if not found or len(found) > FEW:
                break
            if goes_on_outside and any(config.complete for config in found):
                return False
        return not found

    def _after(self, found: set[Config], reading: Reading) -> set[Config]:
        """The configs that bytes of these classes lead to."""
        step = self.configs.step
        for classes in reading:
            found = {config.next[c] or step(config, c) for config in found for c in classes}
        return found


def collect(left: dict[bytes, list[int]], trie: Trie, exits: list[Exit], follow: list[bool]) -> None:
    """Adds the text after the exit of each token to `left`, if it begins with a byte that may follow."""
    for low, high, depth in exits:
        for i in range(low, high):
            key = trie.keys[i]
            if len(key) > depth and follow[key[depth]]:
                left.setdefault(key[depth:], []).extend(trie.token_ids[i])


def remembered(cache: dict[K, V], key: K, compute: Callable[[K], V], limit: int) -> V:
    """The cached value of a key; a cache that has reached its limit is emptied first."""
    found = cache.get(key)
    if found is None:
        found = compute(key)
        if len(cache) >= limit:
            cache.clear()
        cache[key] = found
    return found
