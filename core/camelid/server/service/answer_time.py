"""The ends of an answer that its request did not ask for, and the time limit `t_max_predict_ms`."""

from __future__ import annotations

from dataclasses import dataclass
from time import monotonic

from camelid.requests.output_text import Completion
from camelid.server.http.errors import ApiError, retry_later
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


def check_end(completion: Completion) -> None:
    """Raises ApiError for an answer that its time limit or the server's end cut."""
    n = len(completion.token_ids)
    if completion.finish_reason == "timeout":
        raise ApiError(
            408, f"the time limit passed after {n} tokens of the answer; request fewer tokens or raise "
            "the limit", code="timeout", headers={"x-should-retry": "false"},
        )  # fmt: skip
    if completion.finish_reason == "cancelled":
        raise retry_later(503, f"the server ended the answer after {n} tokens", 1, "cancelled")
