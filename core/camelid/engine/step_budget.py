"""How many prompt rows a step may have while others wait for their next token; how many steps run ahead."""

from __future__ import annotations

BUSY_STEPS = 2  # steps in flight that keep a device busy, whatever they do
RUN_AHEAD_S = (
    0.03  # about what an end, a newcomer or a cancelled request waits for, where two steps take less
)
MIN_PREFILL_ROWS = 32  # fewer cost a matrix product most of its speed (notes on prefill: 1B on two cores)
SMOOTHING = 0.2  # how much the latest step counts


class PrefillBudget:
    """The rows that fit a step of `step_s` seconds, by how long steps took so far.

    A step that also generates should not keep its streams waiting for a long prompt of somebody else. On a
    device that computes a whole chunk within that time nothing changes.
    """

    def __init__(self, step_s: float) -> None:
        self._step_s = step_s
        self._row_s = 0.0

    def observe(self, n_rows: int, seconds: float) -> None:
        """A step with prompt rows took so long."""
        row_s = seconds / max(n_rows, 1)
        self._row_s += (row_s - self._row_s) * (SMOOTHING if self._row_s else 1.0)

    def rows(self, most: int) -> int:
        """Rows for a step that others wait for."""
        if not self._row_s:
            return most
        return min(most, max(int(self._step_s / self._row_s), MIN_PREFILL_ROWS))


def rows_ahead(chunk: int, depth: int) -> int:
    """Rows of one sequence in `depth` steps in flight: a chunk in those that keep a device busy, then one."""
    return chunk * min(depth, BUSY_STEPS) + max(depth - BUSY_STEPS, 0)


class RunAhead:
    """The steps that may be in flight, by how long those took that only generate.

    Of short ones more than a device needs: the host then looks at several at once, and less often. What it
    does for a look takes 0.4 ms, in which a step may have a thread fewer, a token more 0.1.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._step_s = 0.0

    def observe(self, seconds: float) -> None:
        """A step that only generated took so long."""
        self._step_s += (seconds - self._step_s) * (SMOOTHING if self._step_s else 1.0)

    def steps(self) -> int:
        """How many may be in flight, if all of them only generate."""
        if not self._step_s:
            return min(BUSY_STEPS, self._most)
        return min(max(int(RUN_AHEAD_S / self._step_s), BUSY_STEPS), self._most)
