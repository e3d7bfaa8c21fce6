"""All facts of a server at one moment, for the metrics' names and the live panel. Reading loads no model."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from camelid.engine.metrics import Counters, EngineStats
from camelid.server.metrics.histogram import Bounds, Histogram, merged
from camelid.server.metrics.live import ModelTally, Series, Steps
from camelid.server.metrics.tally import Tally
from camelid.server.service.models import Entry, State
from camelid.server.service.service import Service

IDLE = EngineStats(n_running=0, n_waiting=0, held_bytes=0, cached_bytes=0, total_bytes=0)
STATES: tuple[State, ...] = ("unloaded", "loading", "loaded", "failed")


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """One model: its load, its counts, and its series over all endpoints."""

    name: str
    state: State
    service: Service | None
    load: EngineStats
    totals: Counters
    tally: ModelTally
    series: tuple[Series, ...]

    @property
    def n_places(self) -> int:
        """Requests that run or wait."""
        return self.service.admission.n_places if self.service else 0

    @property
    def n_capacity(self) -> int:
        """Requests that may run or wait."""
        return self.service.admission.capacity if self.service else 0

    @property
    def kv_share(self) -> float:
        """The share of the KV cache that requests hold."""
        return self.load.held_bytes / self.load.total_bytes if self.load.total_bytes else 0.0

    @property
    def n_steps(self) -> int:
        return sum(steps.seconds.n for steps in self.tally.steps.values())

    def sum(self, read: Callable[[Series], float]) -> float:
        """A count, over all endpoints."""
        return sum(map(read, self.series))

    def histogram(self, read: Callable[[Series], Histogram], bounds: Bounds) -> Histogram:
        """A histogram, over all endpoints."""
        return merged(map(read, self.series), bounds)

    def steps(self) -> Iterable[tuple[str, Steps]]:
        """Programs and their steps."""
        return self.tally.steps.items()


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The figures of one scrape."""

    tally: Tally
    models: tuple[ModelFacts, ...]
    n_lines_dropped: int
    started: float

    @classmethod
    def of(cls, tally: Tally, entries: Iterable[Entry], n_lines_dropped: int, started: float) -> Snapshot:
        """The facts of these models; none is loaded for it."""
        return cls(tally, tuple(model_facts(tally, entry) for entry in entries), n_lines_dropped, started)


def model_facts(tally: Tally, entry: Entry) -> ModelFacts:
    """The facts of one model, which is followed from now on if it was not."""
    name, service = entry.row.name, entry.service
    if service:
        tally.loaded(service)
    own = tally.model(name)
    return ModelFacts(
        name=name, state=entry.state, service=service,
        load=service.host.running.engine.stats() if service else IDLE,
        totals=own.totals(), tally=own, series=tuple(tally.of_model(name)),
    )  # fmt: skip


def resident_bytes() -> int | None:
    """Bytes of the process in memory; None where the system has no /proc."""
    try:
        pages = Path("/proc/self/statm").read_text("ascii").split()[1]
    except OSError:
        return None
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


def uptime_s(started: float) -> float:
    """Seconds since a time of the wall clock; never negative, although that clock may be set back."""
    return max(time.time() - started, 0.0)
