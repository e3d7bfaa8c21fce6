"""llama.cpp's slots: a number for each sequence that runs, and the tokens last held under it.

Camelid's sequences share one prefix cache, so a slot holds no memory of its own. Its token ids name the rows
that a client may save, restore or erase.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count, takewhile
from pathlib import Path
from typing import Protocol

from camelid.engine.adapters import NO_ADAPTER, RowKeys
from camelid.engine.request import Request
from camelid.server.service.host import Batch
from camelid.server.service.job import Job

LOG = logging.getLogger("camelid.server")
# llama-server's tags of its debug lines, for which its clients look.
ENABLED_TAG, IDLE_TAG = "__TEST_TAG_CACHE_IDLE_SLOTS_ENABLED__", "__TEST_TAG_CACHE_IDLE_SLOT__"


class Started(Protocol):
    """The parts of a job under way that slots read; they write the number of each choice."""

    @property
    def job(self) -> Job: ...
    @property
    def request(self) -> Request: ...
    @property
    def slot_ids(self) -> dict[int, int]: ...


@dataclass(frozen=True, slots=True)
class SlotSettings:
    """Switches of the routes of slots and properties.

    `save_path` is the only folder of slot files; without it no slot is saved. `is_verbose` adds `__verbose`
    to replies; `shifts_context` lets llama.cpp's endpoints drop old tokens where the context is full.
    """

    save_path: Path | None = None
    shows_slots: bool = True
    allows_props: bool = False
    is_verbose: bool = False
    shifts_context: bool = False


@dataclass(slots=True, eq=False)
class Held:
    """One choice under way, and the facts of it that /slots shows."""

    started: Started
    choice: int
    task_id: int
    n_decoded: int = 0
    has_new_line: bool = False


@dataclass(slots=True, eq=False)
class Slot:
    """A number, the choice that holds it, and the tokens held last.

    `salt` is that of their request, `row_keys` those of the adapters that computed their rows.
    """

    id: int
    holder: Held | None = None
    last: Held | None = None
    token_ids: tuple[int, ...] = ()
    salt: str = ""
    row_keys: RowKeys = NO_ADAPTER
    is_logged: bool = False  # as idle, with these tokens
    _freed: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def shown(self) -> Held | None:
        """The choice that holds the slot, else the one that held it last."""
        return self.holder or self.last

    def remember(self, token_ids: Sequence[int], salt: str, row_keys: RowKeys = NO_ADAPTER) -> None:
        """Replaces the tokens held last."""
        self.token_ids, self.salt, self.row_keys = tuple(token_ids), salt, row_keys
        self.is_logged = False

    async def idle(self) -> None:
        """Waits until no choice holds the slot."""
        while self.holder:
            self._freed.clear()
            await self._freed.wait()

    def release(self, request: Request, answer_ids: Sequence[int] = ()) -> None:
        """Ends the holder's use."""
        self.last, self.holder = self.holder, None
        self.remember((*request.prompt_ids, *answer_ids), request.salt, request.row_keys)
        self._freed.set()


class Slots:
    """The slots of one model, as an observer of its jobs.

    A choice takes the slot that its job prefers, if it is free, else the lowest free one; without a free slot
    it waits in order of arrival. `changing` is held by the action that saves, restores or erases.
    """

    def __init__(self, n: int) -> None:
        self._slots = [Slot(i) for i in range(n)]
        self._waiting: deque[Held] = deque()
        self._task_ids = count()
        self.logs_idle = True
        self.changing = asyncio.Lock()  # one action at a time has a slot's rows in memory

    def __iter__(self) -> Iterator[Slot]:
        return iter(self._slots)

    def __len__(self) -> int:
        return len(self._slots)

    def __getitem__(self, id: int) -> Slot:
        return self._slots[id]

    def submitted(self, started: Started) -> None:
        """Gives each choice a slot, or lets it wait for one."""
        self._waiting.extend(Held(started, choice, next(self._task_ids)) for choice in range(started.job.n))
        self._assign()

    def advanced(self, started: Started, batch: Batch) -> None:
        """Counts tokens; the last batch of a choice frees its slot, which keeps the token ids."""
        slot = self._of(started, batch.choice)
        if slot is None or slot.holder is None:
            return
        slot.holder.n_decoded += len(batch.events)
        slot.holder.has_new_line |= any("\n" in event.text for event in batch.events)
        if batch.is_last:
            slot.release(started.request, ids_with_rows(batch))
            self._assign()

    def closed(self, started: Started) -> None:
        """Frees the slots of choices that were cancelled; they keep the prompt's token ids."""
        self._waiting = deque(held for held in self._waiting if held.started is not started)
        for slot in self._slots:
            if slot.holder and slot.holder.started is started:
                slot.release(started.request)
        self._assign()

    def n_shared(self, slot: Slot) -> int:
        """Tokens with which both this slot's and another slot's tokens of the same rows begin, at most."""
        own, salt = slot.row_keys.ids(slot.token_ids), slot.row_keys.salt(slot.salt)
        others = [each for each in self._slots if each is not slot and each.row_keys.salt(each.salt) == salt]
        return max((n_common(own, other.row_keys.ids(other.token_ids)) for other in others), default=0)

    def _of(self, started: Started, choice: int) -> Slot | None:
        number = started.slot_ids.get(choice)
        return None if number is None else self._slots[number]

    def _assign(self) -> None:
        free = [slot for slot in self._slots if slot.holder is None]
        while free and self._waiting:
            held = self._waiting.popleft()
            slot = next((slot for slot in free if slot.id == held.started.job.id_slot), free[0])
            free.remove(slot)
            slot.holder = held
            held.started.slot_ids[held.choice] = slot.id
            if LOG.isEnabledFor(logging.DEBUG):
                self._log_idle(slot, is_asked=slot.id == held.started.job.id_slot)

    def _log_idle(self, taken: Slot, *, is_asked: bool) -> None:
        """Logs the idle slots when a choice takes another: the prefix cache keeps their rows."""
        if not is_asked:
            LOG.debug("slot %d: updating prompt cache, which has the rows of idle slots", taken.id)
        for slot in self._slots if self.logs_idle else ():
            if slot.holder is None and slot.token_ids and not slot.is_logged:
                slot.is_logged = True
                LOG.debug("slot %d is idle, its rows stay in the prefix cache %s", slot.id, IDLE_TAG)


def ids_with_rows(batch: Batch) -> Sequence[int]:
    """The token ids of an ended answer, without the last one drawn, which no step computed."""
    done = batch.completion
    if done is None:
        return ()
    return done.token_ids[:-1] if done.finish_reason == "length" else done.token_ids


def n_common(first: Sequence[int], second: Sequence[int]) -> int:
    """The length of the longest common prefix."""
    pairs = zip(first, second, strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
