"""How much a step does: prefill rows by a time budget, and the steps in flight."""

from __future__ import annotations

from typing import Protocol

from camelid.engine.programs import DECODE

BUSY_STEPS = 2  # steps in flight that keep a device busy, whatever they do
# Total seconds of the steps in flight, if two take less: about the delay of a stop, a new or a cancelled
# request.
RUN_AHEAD_S = 0.03
MIN_PREFILL_ROWS = 1  # of a step, however slow: a prompt must end, too
SMOOTHING = 0.2  # weight of the latest step in the moving average


class PrefillBudget:
    """The prefill rows that fit a step while sequences generate, by measured times.

    A long prompt must not delay the next token of generating sequences, in this step or in one of their own
    program. Both together take about `step_s` seconds, or twice those of a step that only generates if that
    is longer: prompts have half of the device. A row takes longer the deeper it is, since attention reads all
    rows before it: a prompt of 32,000 rows on two cores begins at 0.7 ms and ends at 25 ms a row. Times are
    kept by the power of two of the depth.
    """

    def __init__(self, step_s: float) -> None:
        self._budget_s = step_s
        self._generating_s = 0.0
        self._row_s: dict[int, float] = {}  # by the bit length of the depth

    @property
    def seconds(self) -> float:
        """The time for prefill rows in a step while sequences generate."""
        return max(self._budget_s - self._generating_s, self._generating_s)

    def observe_generation(self, seconds: float) -> None:
        """Averages in the time of a step that only generated."""
        self._generating_s = _average(self._generating_s, seconds)

    def observe(self, depth: int, n_rows: int, seconds: float, *, generates: bool) -> None:
        """Averages in the time of a step with this many prefill rows from this depth on."""
        if n_rows:
            own = max(seconds - self._generating_s, seconds / 10) if generates else seconds
            known = self._row_s.get(depth.bit_length(), 0.0)
            self._row_s[depth.bit_length()] = _average(known, own / n_rows)

    def row_s(self, depth: int) -> float:
        """The seconds of a row; 0 before any measurement.

        An unknown depth has the time of the next shallower one, in proportion to the depth, so that the first
        step of a deep prompt whose beginning is cached is short; else the time of a deeper one.
        """
        at = depth.bit_length()
        if at in self._row_s:
            return self._row_s[at]
        shallower = max((known for known in self._row_s if known < at), default=None)
        if shallower is None:
            return self._row_s[min(self._row_s)] if self._row_s else 0.0
        return self._row_s[shallower] * max(depth / (1 << shallower), 1.0)

    def rows(self, depth: int, seconds: float, most: int) -> int:
        """The rows from a depth on that take these seconds, up to `most`."""
        row_s = self.row_s(depth)
        return int(min(most, seconds / row_s)) if row_s else most


def _average(known: float, latest: float) -> float:
    """A moving average; the first value counts whole."""
    return known + (latest - known) * (SMOOTHING if known else 1.0)


def rows_ahead(chunk: int, depth: int, n_stages: int = 1) -> int:
    """Rows of one sequence in `depth` steps in flight: chunks in the steps that keep a device busy, then one
    row a step."""
    n_chunks = min(depth, max(BUSY_STEPS, n_stages))
    return chunk * n_chunks + depth - n_chunks


class Schedule(Protocol):
    """The part of a scheduler that running ahead needs."""

    @property
    def can_run_ahead(self) -> bool: ...
    @property
    def has_recurrent(self) -> bool: ...


class RunAhead:
    """The number of steps in flight: one per stage, or by the measured time of steps that only generate.

    Short steps run further ahead, so that the host reads several results at once: a read takes 0.4 ms, during
    which a CPU step may have one thread less, and 0.1 ms for each further token.
    """

    def __init__(self, most: int, n_stages: int = 1) -> None:
        self._most, self._n_stages = most, n_stages
        self._step_s = 0.0

    def observe(self, seconds: float) -> None:
        """Averages in the time of a step that only generated."""
        self._step_s = _average(self._step_s, seconds)

    def has_room(self, programs: list[str], scheduler: Schedule) -> bool:
        """True if a further step may be submitted beside steps of these programs.

        More than `BUSY_STEPS` run ahead in stages, and otherwise only if every step in flight is `decode`:
        prefill steps take long. A recurrent allocation keeps the states of its last two steps only.
        """
        n = len(programs)
        busy = BUSY_STEPS if scheduler.has_recurrent else max(BUSY_STEPS, self._n_stages)
        if n < min(busy, self._most):
            return True
        return n < self.steps() and scheduler.can_run_ahead and all(name == DECODE for name in programs)

    def steps(self) -> int:
        """The number of steps that may be in flight if all of them only generate."""
        if not self._step_s:
            return min(BUSY_STEPS, self._most)
        return min(max(int(RUN_AHEAD_S / self._step_s), BUSY_STEPS), self._most)
