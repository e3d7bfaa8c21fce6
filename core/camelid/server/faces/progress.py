"""Reports of a stream before its end: computed rows of the prompt, and timings so far."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

from camelid.server.faces.common import Body, timing_fields
from camelid.server.service.host import Batch
from camelid.server.service.prompt_progress import PromptProgress


def wants_progress(own: Mapping[str, Any]) -> bool:
    """True if chunks hold facts that only reports on the prompt have."""
    return bool(own.get("stream") and (own.get("return_progress") or own.get("timings_per_token")))


def prompt_progress(progress: PromptProgress) -> Body:
    """llama.cpp's report on a prompt."""
    return {
        "total": progress.n_prompt,
        "cache": progress.n_cached,
        "processed": progress.n_done,
        "time_ms": round(1e3 * progress.seconds),
    }


@dataclass(slots=True)
class LiveTimings:
    """The timings of one choice while it runs, as the server's thread sees them."""

    n_prompt: int
    n_cached: int = 0
    n_answer: int = 0
    started: float = field(default_factory=perf_counter)
    first: float = 0.0

    def note(self, batch: Batch) -> None:
        """Counts a batch."""
        for report in batch.progress:
            self.n_cached = report.n_cached
        if batch.events:
            self.first = self.first or perf_counter()

    def body(self) -> Body:
        """llama.cpp's timings object so far."""
        now = perf_counter()
        first = self.first or now
        counts = self.n_cached, self.n_prompt - self.n_cached, self.n_answer
        return timing_fields(*counts, first - self.started, now - first)
