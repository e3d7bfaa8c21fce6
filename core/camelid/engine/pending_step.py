"""A step that was submitted and not yet retired."""

from __future__ import annotations

from dataclasses import dataclass

from camelid.backends.base import Backend, Result, Ticket
from camelid.engine.scheduler import Batch


@dataclass(slots=True, eq=False)
class PendingStep:
    """Its batch and ticket; once it was read, its result or what went wrong."""

    batch: Batch
    ticket: Ticket
    submitted: float
    n_decode: int  # generated rows
    result: Result | None = None
    error: Exception | None = None

    async def read(self, backend: Backend) -> None:
        """Waits for it, unless it was read before. It is as if not read if this is cancelled."""
        if self.result is None and self.error is None:
            try:
                self.result = await backend.read(self.ticket)
            except Exception as error:
                self.error = error
