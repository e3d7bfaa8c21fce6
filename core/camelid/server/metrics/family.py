"""A row of the metrics' tables, and its family for prometheus_client."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from camelid.server.metrics.histogram import Histogram
from camelid.server.metrics.live import Series
from camelid.server.metrics.snapshot import ModelFacts, Snapshot

Labels: TypeAlias = tuple[str, ...]
Samples: TypeAlias = Iterable[tuple[Labels, float]]
Histograms: TypeAlias = Iterable[tuple[Labels, Histogram]]


@dataclass(frozen=True, slots=True)
class Row:
    """A counter or gauge: name, help, labels, and the values of a snapshot."""

    kind: Literal["counter", "gauge"]
    name: str
    text: str
    labels: Labels
    read: Callable[[Snapshot], Samples]

    def family(self, snapshot: Snapshot) -> Metric:
        """The family with its samples."""
        made = CounterMetricFamily if self.kind == "counter" else GaugeMetricFamily
        family = made(self.name, self.text, labels=self.labels)
        for labels, value in self.read(snapshot):
            family.add_metric(labels, value)
        return family


@dataclass(frozen=True, slots=True)
class HistogramRow:
    """A histogram: name, help, labels, and the histograms of a snapshot."""

    name: str
    text: str
    labels: Labels
    read: Callable[[Snapshot], Histograms]

    def family(self, snapshot: Snapshot) -> Metric:
        """The family with its samples."""
        family = HistogramMetricFamily(self.name, self.text, labels=self.labels)
        for labels, histogram in self.read(snapshot):
            family.add_metric(labels, histogram.cumulated(), histogram.total)
        return family


AnyRow: TypeAlias = Row | HistogramRow
Read: TypeAlias = Callable[[ModelFacts], float]


def per_model(read: Read) -> Callable[[Snapshot], Samples]:
    """One value per model."""
    return lambda snapshot: [((model.name,), read(model)) for model in snapshot.models]


def per_series(read: Callable[[Series], float]) -> Callable[[Snapshot], Samples]:
    """One value per endpoint and model."""
    return lambda snapshot: [(labels, read(series)) for labels, series in snapshot.tally.series.items()]


def series_histograms(read: Callable[[Series], Histogram]) -> Callable[[Snapshot], Histograms]:
    """One histogram per endpoint and model."""
    return lambda snapshot: [(labels, read(series)) for labels, series in snapshot.tally.series.items()]


def per_reason(snapshot: Snapshot) -> Iterator[tuple[Labels, float]]:
    """Answers per endpoint, model and finish reason."""
    for labels, series in snapshot.tally.series.items():
        for reason, n in series.reasons.items():
            yield (*labels, reason), n
