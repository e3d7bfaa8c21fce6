"""The time limit of an answer's text: llama.cpp's `t_max_predict_ms`."""

from __future__ import annotations

from dataclasses import dataclass
from time import monotonic

from camelid.server.service.host import Batch


@dataclass(slots=True)
class AnswerTime:
    """The end of an answer: its first new line after `limit_s` seconds from the first token."""

    limit_s: float
    _first: float | None = None
    _has_new_line: bool = False

    def is_over(self, batch: Batch) -> bool:
        """True if the answer ends with this batch."""
        if not batch.events:
            return False
        now = monotonic()
        self._first = now if self._first is None else self._first
        self._has_new_line |= any("\n" in event.text for event in batch.events)
        return self._has_new_line and now - self._first > self.limit_s and not batch.is_last
