"""The background loop: a thread of lowest priority that starts a run when there is something to learn."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from camelid.learning.loops import FEWEST_ITEMS, Run
from camelid.learning.space import Space
from camelid.learning.store.lease import Lease
from camelid.learning.store.store import LEARNT
from camelid.learning.training import Interrupted, Pace

NICEST = 19


@dataclass(frozen=True, slots=True, kw_only=True)
class When:
    """A run starts after `n_items` new items, or with any new item once nobody asked for `idle_s` seconds; it
    works for at most `most_s` seconds.
    """

    n_items: int = 20
    idle_s: float = 300.0
    look_s: float = 1.0
    most_s: float = 3600.0


class Background:
    """Runs `work` for a space beside an engine. `is_busy` is asked between steps; `report` receives each run.

    One process at a time trains a store; `is_training` while this one does. The thread, and all that `work`
    starts, has the lowest priority.
    """

    def __init__(
        self,
        space: Space,
        work: Callable[[Pace], Run],
        is_busy: Callable[[], bool],
        when: When | None = None,
        report: Callable[[Run | Exception], object] = lambda run: None,
    ) -> None:
        assert space.store, "what is learnt is stored"
        self._space, self._store, self._work = space, space.store, work
        self._is_busy, self._report = is_busy, report
        self._when = when or When()
        self._stop = threading.Event()
        self.is_training = False
        self._seen = int(self._store.fact(LEARNT) or 0)
        self._last_busy = time.monotonic()
        self._thread = threading.Thread(target=self._main, name="camelid training", daemon=True)
        self._thread.start()

    def _newest(self) -> int:
        return max((item.id for item in self._space.memory.items), default=0)

    def _main(self) -> None:
        with suppress(OSError, AttributeError):  # not on macOS, where priorities are of processes
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICEST)
        while not self._stop.wait(self._when.look_s):
            if self._is_busy():
                self._last_busy = time.monotonic()
            elif self._is_due():
                self._run()

    def _is_due(self) -> bool:
        self._space.refresh()
        items = self._space.memory.items
        n_new = sum(item.id > self._seen for item in items)
        is_idle = time.monotonic() - self._last_busy >= self._when.idle_s
        if n_new < (1 if is_idle else self._when.n_items):
            return False
        return sum(bool(item.approved) for item in items) >= FEWEST_ITEMS

    def _run(self) -> None:
        """One run under the store's lease; an error is reported, and the next item begins another run."""
        newest = self._newest()
        pace = Pace(
            time.monotonic, self._stop.wait, seconds=self._when.most_s, is_busy=self._is_busy,
            is_stopped=self._stop.is_set,
        )  # fmt: skip
        try:
            with Lease(self._store.path) as has_lease:
                if not has_lease:
                    return
                self.is_training = True
                run = self._work(pace)
        except Interrupted:
            self._seen = self._seen if self._stop.is_set() else newest  # its time is over
        except Exception as error:
            self._seen = newest
            self._report(error)
        else:
            self._seen = newest
            self._store.set_fact(LEARNT, str(newest))
            self._report(run)
        finally:
            self.is_training = False

    def close(self) -> None:
        """Stops a run at its next step and ends the thread."""
        self._stop.set()
        self._thread.join()
