"""A user's space: store and memory together, kept equal, also beside other processes."""

from __future__ import annotations

import threading
import time
from array import array
from itertools import count
from typing import TYPE_CHECKING

from camelid.errors import RequestError
from camelid.learning.items import Exchange, Item
from camelid.learning.memory import Memory, Recall
from camelid.learning.robust import MOST_OF_SOURCE, Quota, conversation_key
from camelid.learning.rows import FEWEST_PAST, FORM, FORMS, MEMORY_SCOPE, MOST_FITTED, Contexts, PastRequest
from camelid.learning.scope import KEPT

if TYPE_CHECKING:  # a web page has no SQLite, and no NumPy
    from camelid.learning.recorder import Recorder
    from camelid.learning.store.forget import Forgotten
    from camelid.learning.store.store import Store
    from camelid.learning.trained.memory_scope import Near

MOST_IN_PAGE = 500  # items of a space without a store


class Space:
    """Feedback of one user on one base model. Without a store, as in a page, it ends with the process."""

    def __init__(self, memory: Memory, store: Store | None = None, recorder: Recorder | None = None) -> None:
        self.memory, self.store, self.recorder = memory, store, recorder
        self.quota = Quota()
        self._ids = count(1)
        self._mark = -1
        self._last = 0  # the newest item that is in memory
        self._seen = 0  # the newest event that is known
        self._lock = threading.RLock()
        self._form = FORMS[0]  # without a store
        self._near: Near | None = None
        self._near_of = -1
        self._is_near_whole = False
        self.n_failed, self.failure = 0, ""
        if store:
            self._read(store)

    @property
    def form(self) -> str:
        """The effect of recalled items, one of FORMS."""
        return (self.store.fact(FORM) if self.store else None) or self._form

    def set_form(self, form: str) -> None:
        """Chooses what recalled items do; the gate's choice survives the process."""
        if self.store:
            self.store.set_fact(FORM, form)
        else:
            self._form = form

    def feedback(self, item: Item, vector: array[float]) -> Item:
        """Stores an item; it acts at once. Raises RequestError beyond the source's quota, LearningError."""
        with self._lock:
            self.refresh()
            self._check_room(item.source)
            self.quota.spend(item.source)
            stored = (
                self.store.add(item, vector.tobytes())
                if self.store
                else item.stored(next(self._ids), time.time())
            )
            self.memory.add(stored, vector.tobytes())
            self._last = max(self._last, stored.id)
        if self.recorder:
            self.recorder.wake()
        return stored

    def _check_room(self, source: str) -> None:
        most = MOST_OF_SOURCE if self.store else MOST_IN_PAGE
        n = sum(item.source == source for item in self.memory.items) if len(self.memory) >= most else 0
        if n >= most:
            raise RequestError(
                f"{source!r:.80} has given {n} pieces of feedback, the most that are kept; forget some",
                field="feedback", reason="quota", retry_s=3600.0,
            )  # fmt: skip

    def nearest(self, vector: array[float]) -> Recall:
        """The items nearest to a request; what other processes stored or forgot meanwhile counts."""
        with self._lock:
            self.refresh()
            return self.memory.nearest(vector)

    @property
    def near(self) -> Near | None:
        """The fitted scope of memory; None if there is none for the items that act now."""
        return self._near if self._near_of == self.memory.n_changes else None

    def to_fit(self) -> tuple[int, list[Item]]:
        """The items that a scope is fitted to, with their `Memory.n_changes`."""
        with self._lock:
            return self.memory.n_changes, self.memory.acting[-MOST_FITTED:]

    def set_near(self, near: Near | None, n_changes: int, *, is_whole: bool = True) -> None:
        """Keeps the scope that was fitted to the items as of `Memory.n_changes`; a whole one in the store.

        None, and one that is not whole, since prompts are still to be read, replace no whole one.
        """
        with self._lock:
            self.refresh()
            is_less = near is None or not is_whole
            if n_changes != self.memory.n_changes or (is_less and self.has_whole_scope):
                return  # an item came or was forgotten meanwhile, or another process was faster
            self._near, self._near_of, self._is_near_whole = near, n_changes, is_whole
            if self.store and near and is_whole:
                self.store.set_fact(MEMORY_SCOPE, near.to_text())

    @property
    def has_whole_scope(self) -> bool:
        """True if a scope is fitted to the items that act now and to all past requests."""
        return self.near is not None and self._is_near_whole

    def failed(self, error: Exception) -> None:
        """Counts a request, a fit or a run that failed, and keeps the reason."""
        self.n_failed += 1
        self.failure = str(error) or type(error).__name__

    def _read_near(self, store: Store) -> None:
        """Reads a scope that another process, or this one earlier, fitted to the same items."""
        from camelid.learning.trained.memory_scope import Near  # NumPy, which a page lacks

        text = store.fact(MEMORY_SCOPE)
        near = Near.from_text(text) if text else None
        n_changes, acting = self.to_fit()
        if near and set(near.items) == {item.id for item in acting}:
            self._near, self._near_of, self._is_near_whole = near, n_changes, True

    @property
    def past(self) -> list[Exchange]:
        """The past requests for whose prompts there is no feedback, the oldest first.

        Requests that feedback acted on are left out: one in scope would be a negative of the next fit. Of
        those near feedback before the fit, only the farthest count, if others are too few.
        """
        if self.recorder:
            self.recorder.flush()  # a fit right after feedback sees the requests before it
        items, stored = self.memory.items, self.store.requests() if self.store else []
        on = {item.exchange.completion_id for item in items}
        keys = {conversation_key(item.exchange) for item in items}
        bare = [
            each for each in stored if not each.exchange.is_learnt and each.exchange.completion_id not in on
        ]
        past = [each for each in bare if conversation_key(each.exchange) not in keys]
        undecided = [each for each in past if each.exchange.is_undecided]
        n = max(FEWEST_PAST - len(past) + len(undecided), 0)
        near = sorted(undecided, key=self._similarity)[n:]
        left_out = {each.exchange.completion_id for each in near}
        return [each.exchange for each in past if each.exchange.completion_id not in left_out]

    def _similarity(self, request: PastRequest) -> float:
        """The similarity of a past request's question to the nearest item's."""
        with self._lock:
            return self.memory.similarity(array("f", request.vector))

    @property
    def replaced(self) -> frozenset[int]:
        """The items in whose place the version in use acts."""
        if self.store is None:
            return frozenset()
        from camelid.learning.store.versions import replaced_items

        return replaced_items(self.store)

    def set_contexts(self, item: Item, found: Contexts) -> bool:
        """Stores the contexts of an item's answer. False as `Memory.set_contexts`."""
        with self._lock:
            is_set = self.memory.set_contexts(item.id, found)
            if self.store and is_set:
                self.store.add_contexts(item.id, found)
            return is_set

    def note(self, exchange: Exchange, vector: array[float]) -> None:
        """Remembers a finished request, later and on another thread."""
        if self.recorder:
            self.recorder.note(PastRequest(exchange, vector.tobytes()))

    def refresh(self) -> None:
        """Reads what other processes wrote, if they did."""
        if self.store and self.store.connection.mark != self._mark:
            self._read(self.store)

    def _read(self, store: Store) -> None:
        """Brings the memory up to the store: new items, forgotten items, contexts."""
        with self._lock:
            self._mark = store.connection.mark
            news = store.news(self._seen)
            self._seen = news[-1][0] if news else self._seen
            for _, kind, subject in news:
                if kind == "forget":
                    self.memory.remove(int(subject))
            fresh, items = dict(store.vectors(self._last)), store.items(self._last)
            for i, item in enumerate(items):
                self.memory.add(item, fresh[item.id], in_scope=len(items) - i <= KEPT)
                self._last = item.id
            lacking = [item.id for item in self.memory.without_contexts()]
            for id, found in store.contexts(lacking).items():
                self.memory.set_contexts(id, found)
            if self.memory.n_acting and not self.has_whole_scope:
                self._read_near(store)

    def forget(self, id: int) -> Forgotten | None:
        """Forgets an item. Raises RequestError for an unknown one."""
        with self._lock:
            found = None
            if self.store:
                from camelid.learning.store.forget import forget

                if self.recorder:
                    self.recorder.flush()
                try:
                    found = forget(self.store, id)
                finally:  # it is deleted even if its bytes wait for another process
                    self.memory.remove(id)
            elif id not in {item.id for item in self.memory.items}:
                raise RequestError(f"there is no item {id!r:.80}", field="item")
            self.memory.remove(id)
            return found

    def item(self, id: int) -> Item:
        """An item by its number. Raises RequestError."""
        found = next((item for item in self.memory.items if item.id == id), None)
        if found is None:
            raise RequestError(f"there is no item {id!r:.80}", field="item")
        return found

    def close(self) -> None:
        """Writes what waits, and closes the store."""
        if self.recorder:
            self.recorder.close()
        if self.store:
            self.store.close()
