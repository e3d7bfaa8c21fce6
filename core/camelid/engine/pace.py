"""How many prompt rows a step may have while others wait for their next token."""

from __future__ import annotations

LEAST_ROWS = 32  # fewer cost a matrix product most of its speed (notes on prefill: 1B on two cores)
MEMORY = 0.2  # how much the latest step counts


class Pace:
    """The rows that fit a step of `step_s` seconds, by how long steps took so far.

    A step that also generates should not keep its streams waiting for a long prompt of somebody else. On a
    device that computes a whole chunk within that time nothing changes.
    """

    def __init__(self, step_s: float) -> None:
        self._step_s = step_s
        self._row_s = 0.0

    def note(self, n_rows: int, seconds: float) -> None:
        """A step with prompt rows took so long."""
        row_s = seconds / max(n_rows, 1)
        self._row_s += (row_s - self._row_s) * (MEMORY if self._row_s else 1.0)

    def rows(self, most: int) -> int:
        """Rows for a step that others wait for."""
        if not self._row_s:
            return most
        return min(most, max(int(self._step_s / self._row_s), LEAST_ROWS))
