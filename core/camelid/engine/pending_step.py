"""A step that has been submitted and not yet retired."""

from __future__ import annotations

from dataclasses import dataclass

from camelid.backends.base import Backend, Result, Ticket
from camelid.engine.scheduler import Batch


@dataclass(slots=True, eq=False)
class PendingStep:
    """The batch and ticket of a step in flight; after `read`, its result or its error."""

    batch: Batch
    ticket: Ticket
    submitted: float
    n_decode: int  # rows of generated tokens
    result: Result | None = None
    error: Exception | None = None

    async def read(self, backend: Backend) -> None:
        """Waits for the step's result, once. A cancelled read may be repeated."""
        if self.result is None and self.error is None:
            try:
                self.result = await backend.read(self.ticket)
            except Exception as error:
                self.error = error
