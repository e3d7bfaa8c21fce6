"""One HTTP call with the jobs that it started, from which its log line and its span are made."""

from __future__ import annotations

import time
from contextvars import ContextVar
from dataclasses import dataclass, field

from camelid.server.http.call import Call
from camelid.server.metrics.live import Live

# Seen by every task of the call, so that a job finds its call although client-made request ids may repeat.
CURRENT: ContextVar[Record | None] = ContextVar("camelid_record", default=None)


@dataclass(slots=True, eq=False)
class Record:
    """The facts of a call. `status` is 499 where the client was gone first; `code` names its error."""

    call: Call
    at: float = field(default_factory=time.time)
    start: float = field(default_factory=time.monotonic)
    jobs: list[Live] = field(default_factory=list[Live])
    path: str = "other"  # the route's, which has few values
    status: int = 0
    code: str = ""
    seconds: float = 0.0

    @property
    def method(self) -> str:
        return self.call.scope["method"]

    @property
    def reasons(self) -> list[str]:
        """How each choice of each job ended."""
        return [live.reasons[choice] for live in self.jobs for choice in sorted(live.reasons)]

    @property
    def n_prompt(self) -> int:
        return sum(live.n_prompt for live in self.jobs)

    @property
    def n_cached(self) -> int:
        return sum(live.n_cached for live in self.jobs)

    @property
    def n_answer(self) -> int:
        return sum(sum(live.n_answer) for live in self.jobs)


def current_record() -> Record | None:
    """The record of the call that this task works for, if it works for one."""
    return CURRENT.get()
