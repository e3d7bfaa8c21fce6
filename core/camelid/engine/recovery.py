"""Recovery from a lost device: a fresh one is opened, and sequences are computed again from their tokens."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from time import perf_counter
from typing import TypeAlias, TypeVar

from camelid.backends.base import Backend
from camelid.engine.batch import PendingStep
from camelid.engine.kv_cache import KVCacheManager
from camelid.engine.metrics import Counters, notify
from camelid.engine.results import FinishReason
from camelid.engine.scheduler import Scheduler
from camelid.engine.sequence import Sequence
from camelid.errors import BackendError, DeviceLostError

T = TypeVar("T")
Notice: TypeAlias = Callable[[str], object]  # receives a sentence for the user

MOST_LOSSES = 3  # in a row: without a retired step between two losses
PAUSE_S = 0.5  # before another attempt, since a driver or a browser restarts its GPU process first


class Recovery:
    """Opens a lost device again, at most `MOST_LOSSES` times in a row, and tells `notices` so.

    `turn` is the engine's lock; `pending` and `sequences` are the engine's own; `end` and `release` as in
    `Delivery`.
    """

    def __init__(
        self,
        backend: Backend,
        state: KVCacheManager,
        scheduler: Scheduler,
        counters: Counters,
        *,
        turn: asyncio.Lock,
        pending: deque[PendingStep],
        sequences: dict[int, Sequence],
        end: Callable[[Sequence, FinishReason, Exception | None], None],
        release: Callable[[Sequence], None],
    ) -> None:
        self.notices: list[Notice] = []
        self.lost: DeviceLostError | None = None  # a loss that is not recovered from yet
        self.n_losses = 0
        self._fault: BackendError | None = None  # why the last try to open the device failed
        self._backend, self._state, self._scheduler, self._counters = backend, state, scheduler, counters
        self._turn, self._pending, self._sequences = turn, pending, sequences
        self._end, self._release = end, release

    async def on_device(self, work: Callable[[], Awaitable[T]]) -> T:
        """Runs `work` between steps, and once more if the device is lost meanwhile."""
        since = self._counters.recoveries
        try:
            return await self._alone(work)
        except DeviceLostError as error:
            await self.recover(error, since)
        return await self._alone(work)

    async def _alone(self, work: Callable[[], Awaitable[T]]) -> T:
        async with self._turn:
            if self.lost:  # a recovery was cancelled
                await self.reopen()
            return await work()

    async def settle(self, retire: Callable[[], Awaitable[None]]) -> None:
        """Retires steps; the loss of the device retires all of them."""
        try:
            await retire()
        except DeviceLostError as error:
            self.lose(error)

    async def recover(self, error: DeviceLostError, since: int) -> None:
        """Continues on a fresh device after a loss outside a step.

        `since` counts the recoveries before the work that met the loss: another may have recovered meanwhile.
        """
        async with self._turn:
            if self._counters.recoveries > since:
                return
            self.lose(error)
            await self.reopen()

    def lose(self, error: DeviceLostError) -> None:
        """Forgets the steps in flight and all state: running sequences wait to be computed again."""
        self.lost = error
        self._counters.lost_steps += len(self._pending)
        self._pending.clear()
        for s in list(self._sequences.values()):
            s.lose_steps()
            if s.is_finished:
                self._release(s)
            elif s.allocation:
                self._scheduler.preempt(s)
        self._scheduler.newly_running.clear()
        self._scheduler.adapters.clear()
        self._state.forget_all()

    async def reopen(self) -> None:
        """Opens the device again; a device that does not come back ends every request.

        A cancelled call can be repeated.
        """
        try:
            await self._reopen()
        except Exception as error:
            self._counters.failed_steps += 1
            for s in list(self._sequences.values()):
                self._end(s, "error", error)
        self.lost = None

    async def _reopen(self) -> None:
        assert self.lost, "a device is lost"
        start, self.n_losses = perf_counter(), self.n_losses + 1
        while not await self._is_open(self.lost):
            await asyncio.sleep(PAUSE_S)
            self.n_losses += 1
        self._counters.recoveries += 1
        n, seconds = len(self._sequences), perf_counter() - start
        text = f"{_reason(self.lost)}; the device is open again after {seconds:.1f} s, running requests: {n}"
        notify(self.notices, text)

    async def _is_open(self, lost: DeviceLostError) -> bool:
        """True once the backend has its device again. Raises DeviceLostError after too many losses."""
        if self.n_losses > MOST_LOSSES:
            self.n_losses = 0  # a later request may try again
            often = f", {MOST_LOSSES} times in a row"
            closed = f"; it could not be opened again: {self._fault.message}" if self._fault else often
            text = f"{_reason(lost)}{closed}; load the model again"
            raise DeviceLostError(text, **lost.facts) from (self._fault or lost)
        try:
            if await self._backend.recover():
                self._fault = None
                return True
        except BackendError as error:
            self._fault = error
            return False
        raise lost


def _reason(lost: DeviceLostError) -> str:
    return str(lost.facts.get("reason", lost.message))
