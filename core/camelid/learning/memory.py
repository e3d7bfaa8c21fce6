"""Memory: the items of a user in this process, and the nearest of them to a request. No gradient."""

from __future__ import annotations

from array import array
from collections.abc import Sequence, Set
from dataclasses import dataclass

from camelid.learning.contexts import KEY_BYTES, NearestContexts
from camelid.learning.features import DIM
from camelid.learning.items import Item
from camelid.learning.robust import conversation_key, verdict
from camelid.learning.rows import Contexts
from camelid.learning.scope import Scope
from camelid.learning.vectors import Kernels, Rows, fast_kernels

N_ITEMS = 3  # nearest items that mix their contexts
N_TURNS = 2  # nearest items that become earlier turns
COARSE = 0.2  # least similarity of words from which a finer scope is asked


@dataclass(frozen=True, slots=True)
class Recall:
    """The nearest items to a request, the nearest first, with their similarities; none out of scope."""

    items: tuple[Item, ...] = ()
    similarities: tuple[float, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.items)

    def within(self, threshold: float) -> Recall:
        """The items from this similarity on."""
        n = sum(similarity >= threshold for similarity in self.similarities)
        return Recall(self.items[:n], self.similarities[:n])

    def without(self, ids: Set[int]) -> Recall:
        """The items but those of these numbers."""
        pairs = zip(self.items, self.similarities, strict=True)
        left = [pair for pair in pairs if pair[0].id not in ids]
        return Recall(tuple(item for item, _ in left), tuple(similarity for _, similarity in left))


class Memory:
    """Items that act: of each prompt the one that its voices agree on (`robust.verdict`)."""

    def __init__(self, kernels: Kernels | None = None) -> None:
        self.kernels = kernels or fast_kernels()
        self.scope = Scope()
        self._items: dict[int, Item] = {}
        self._vectors: dict[int, bytes] = {}
        self._groups: dict[str, list[int]] = {}
        self._acting: dict[str, int] = {}
        self._contexts: dict[int, Contexts] = {}
        self.n_changes = 0  # of the items that act
        self._rows = Rows(DIM, self.kernels)

    def __len__(self) -> int:
        return len(self._items)

    @property
    def items(self) -> Sequence[Item]:
        """All items, in order."""
        return list(self._items.values())

    @property
    def acting(self) -> list[Item]:
        """The items that act, in order."""
        return self._known(sorted(self._rows.names))

    @property
    def n_acting(self) -> int:
        """Items that act."""
        return len(self._rows)

    def add(self, item: Item, vector: bytes, *, in_scope: bool = True) -> None:
        """Adds an item with its question's vector (float32, [DIM]); `in_scope` lets it move the scope."""
        nearest = self._rows.nearest(array("f", vector), 1) if in_scope else []
        if nearest:
            self.scope.items.add(nearest[0][0])
        self._items[item.id], self._vectors[item.id] = item, vector
        key = conversation_key(item.exchange)
        self._groups.setdefault(key, []).append(item.id)
        self._decide(key)

    def remove(self, id: int) -> None:
        """Removes an item and all that was made of it."""
        item = self._items.pop(id, None)
        if item:
            key = conversation_key(item.exchange)
            self._groups[key].remove(id)
            self._decide(key)
            self._vectors.pop(id)
            self._contexts.pop(id, None)

    def _decide(self, key: str) -> None:
        """Lets the item act that the voices on a prompt agree on."""
        self.n_changes += 1
        found = verdict([self._items[id] for id in self._groups[key]])
        before, now = self._acting.pop(key, 0), found.id if found else 0
        if before and before != now:
            self._rows.remove(before)
        if now:
            self._acting[key] = now
            if now != before:
                self._rows.add(now, self._vectors[now])
        if not self._groups[key]:
            del self._groups[key]

    def set_contexts(self, id: int, found: Contexts) -> bool:
        """Gives an item the contexts of its answer. False for an item that is gone, and for contexts without
        keys, as of an interrupted reading.
        """
        if id not in self._items or len(found.keys) != KEY_BYTES * len(found.tokens):
            return False
        self._contexts[id] = found
        return True

    def without_contexts(self) -> list[Item]:
        """The acting items whose contexts are not known, the newest first."""
        return self._known([id for id in self._rows.names[::-1] if id not in self._contexts])

    def _known(self, ids: Sequence[int]) -> list[Item]:
        """The items of these numbers; another thread may have forgotten one."""
        return [item for item in map(self._items.get, ids) if item]

    def similarity(self, vector: array[float]) -> float:
        """The similarity of a question's vector to the nearest item's; 0 without one."""
        found = self._rows.nearest(vector, 1)
        return found[0][0] if found else 0.0

    def nearest(self, vector: array[float]) -> Recall:
        """The items nearest to a question's vector, in scope or not."""
        found = self._rows.nearest(vector, N_ITEMS)
        if found:
            self.scope.requests.add(found[0][0])
        return Recall(tuple(self._items[id] for _, id in found), tuple(s for s, _ in found))

    def mixer_of(self, nearest: Sequence[int], n_prompt: int) -> NearestContexts | None:
        """The mixer of items by number for a prompt of `n_prompt` tokens in scope; None if the contexts of
        none are known.
        """
        known = [found for id in nearest if (found := self._contexts.get(id))]
        return NearestContexts.of(known, self.kernels, n_prompt) if known else None

    def mixer(self, recall: Recall) -> NearestContexts | None:
        """The mixer of the recalled items' contexts; None if none is known."""
        known = [found for item in recall.items if (found := self._contexts.get(item.id))]
        return NearestContexts.of(known, self.kernels) if known else None
