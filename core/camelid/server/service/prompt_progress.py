"""Reports on the computed part of a prompt."""

from __future__ import annotations

from dataclasses import dataclass
from time import perf_counter


@dataclass(frozen=True, slots=True)
class PromptProgress:
    """Rows of a prompt: all, cached ones, and computed ones; seconds since the first report."""

    n_prompt: int
    n_cached: int
    n_done: int
    seconds: float


@dataclass(slots=True)
class ProgressReport:
    """Reports on one prompt: the first has the rows of the prefix cache, the last has all rows."""

    n_prompt: int
    n_cached: int = 0
    n_done: int = -1  # -1 before the first report
    started: float = 0.0

    def since(self, n_cached: int, n_done: int) -> list[PromptProgress]:
        """The reports due, by cached and computed rows."""
        reports: list[PromptProgress] = []
        if self.n_done < 0:
            self.n_cached, self.n_done, self.started = n_cached, n_cached, perf_counter()
            reports.append(self._report())
        if self.n_done < n_done:  # after a preemption fewer rows are computed than before
            self.n_done = n_done
            reports.append(self._report())
        return reports

    def _report(self) -> PromptProgress:
        return PromptProgress(self.n_prompt, self.n_cached, self.n_done, perf_counter() - self.started)
