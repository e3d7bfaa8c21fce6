"""The compiled grammars that a process keeps, bounded by their memory."""

from __future__ import annotations

from collections import OrderedDict

from camelid.text.grammar.automaton import Automaton

MOST_BYTES = 256 << 20


class KeptGrammars:
    """Compiled grammars by key; the ones used least recently go first.

    A grammar's caches grow while it is used, so each look-up measures all of them. The latest grammar stays,
    whatever its size: its own caches have limits.
    """

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self.most_bytes = most_bytes
        self._kept: OrderedDict[bytes, Automaton] = OrderedDict()

    def __len__(self) -> int:
        return len(self._kept)

    @property
    def held_bytes(self) -> int:
        """The memory of all kept grammars, roughly."""
        return sum(automaton.held_bytes for automaton in self._kept.values())

    def get(self, key: bytes) -> Automaton | None:
        """The grammar of a key, now the latest."""
        found = self._kept.get(key)
        if found:
            self._kept.move_to_end(key)
            self._evict()
        return found

    def put(self, key: bytes, automaton: Automaton) -> Automaton:
        """Keeps a grammar as the latest."""
        self._kept[key] = automaton
        self._kept.move_to_end(key)
        self._evict()
        return automaton

    def _evict(self) -> None:
        n_bytes = self.held_bytes
        while n_bytes > self.most_bytes and len(self._kept) > 1:
            _, oldest = self._kept.popitem(last=False)
            n_bytes -= oldest.held_bytes
