"""Measured budgets: the prefill rows of a step that also generates, and the steps that run ahead."""

from __future__ import annotations

BUSY_STEPS = 2  # steps in flight that keep a device busy, whatever they do
# Total seconds of the steps in flight, if two take less: about the delay of a stop, a new or a cancelled
# request.
RUN_AHEAD_S = 0.03
MIN_PREFILL_ROWS = 32  # fewer rows cost a matrix product most of its speed (a 1B model on two cores)
SMOOTHING = 0.2  # weight of the latest step in the moving average


class PrefillBudget:
    """The prefill rows that fit a step of `step_s` seconds, by the measured time per row.

    A long prompt must not delay the next token of generating sequences. A device that computes a whole chunk
    within `step_s` is not limited.
    """

    def __init__(self, step_s: float) -> None:
        self._step_s = step_s
        self._row_s = 0.0

    def observe(self, n_rows: int, seconds: float) -> None:
        """Averages in the time of a step with prefill rows."""
        row_s = seconds / max(n_rows, 1)
        self._row_s += (row_s - self._row_s) * (SMOOTHING if self._row_s else 1.0)

    def rows(self, most: int) -> int:
        """The prefill rows, up to `most`, of a step that also generates."""
        if not self._row_s:
            return most
        return min(most, max(int(self._step_s / self._row_s), MIN_PREFILL_ROWS))


def rows_ahead(chunk: int, depth: int) -> int:
    """Rows of one sequence in `depth` steps in flight: `BUSY_STEPS` chunks, then one row a step."""
    return chunk * min(depth, BUSY_STEPS) + max(depth - BUSY_STEPS, 0)


class RunAhead:
    """The number of steps in flight, by the measured time of steps that only generate.

    Short steps run further ahead, so that the host reads several results at once: a read takes 0.4 ms, during
    which a CPU step may have one thread less, and 0.1 ms for each further token.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._step_s = 0.0

    def observe(self, seconds: float) -> None:
        """Averages in the time of a step that only generated."""
        self._step_s += (seconds - self._step_s) * (SMOOTHING if self._step_s else 1.0)

    def steps(self) -> int:
        """The number of steps that may be in flight if all of them only generate."""
        if not self._step_s:
            return min(BUSY_STEPS, self._most)
        return min(max(int(RUN_AHEAD_S / self._step_s), BUSY_STEPS), self._most)
