"""The number of replicas by the places taken: an autoscaling policy of Ray Serve.

Ray sends this module to its controller by value, so it imports the standard library only.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

PLACES = "places"  # a replica's gauge: sequences that run or wait there
DIGITS = 2  # of the replicas wanted: Ray rounds up, also the last digit of a mean


class Config(Protocol):
    """The part of Ray's configuration that the policy reads."""

    @property
    def target_ongoing_requests(self) -> float: ...


class Context(Protocol):
    """The parts of Ray's AutoscalingContext that the policy reads."""

    @property
    def aggregated_metrics(self) -> Mapping[str, Mapping[Any, float]] | None: ...
    @property
    def total_queued_requests(self) -> float | None: ...
    @property
    def config(self) -> Config: ...


def replicas_for_places(context: Context) -> tuple[float, dict[str, Any]]:
    """Replicas for all sequences that run or wait, with a row of an engine for each; and no state.

    Those that a replica holds are its places taken: four for a request of four choices, none for a scrape of
    metrics. Those that wait in the gate are requests.
    """
    places = (context.aggregated_metrics or {}).get(PLACES, {})
    waiting = context.total_queued_requests or 0.0
    return round((sum(places.values()) + waiting) / context.config.target_ongoing_requests, DIGITS), {}
