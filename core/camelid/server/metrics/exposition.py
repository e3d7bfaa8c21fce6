"""The text that Prometheus reads, from a registry of the server's own."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric
from prometheus_client.exposition import generate_latest as plain_text
from prometheus_client.openmetrics import exposition as openmetrics
from prometheus_client.registry import Collector

from camelid.server.metrics.aliases import alias_rows
from camelid.server.metrics.names import CAMELID
from camelid.server.metrics.snapshot import Snapshot

Encode = Callable[..., bytes]
OPENMETRICS = "application/openmetrics-text"
FORMATS: tuple[tuple[Encode, str], ...] = (
    (plain_text, "text/plain; version=0.0.4; charset=utf-8"),
    # by its name, since its annotations are incomplete
    (vars(openmetrics)["generate_latest"], f"{OPENMETRICS}; version=1.0.0; charset=utf-8"),
)


class Families(Collector):
    """Makes all families anew at each scrape, from the plain lists of the tally."""

    def __init__(self, snapshot: Callable[[], Snapshot], aliases: tuple[str, ...]) -> None:
        self._snapshot, self._aliases = snapshot, aliases

    def describe(self) -> list[Metric]:
        """Nothing: the registry would collect for it."""
        return []

    def collect(self) -> Iterator[Metric]:
        """The families of one moment."""
        snapshot = self._snapshot()
        for row in (*CAMELID, *alias_rows(self._aliases, len(snapshot.models))):
            yield row.family(snapshot)


class Exposition:
    """The metrics' text, in either format."""

    def __init__(self, snapshot: Callable[[], Snapshot], aliases: tuple[str, ...] = ()) -> None:
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(Families(snapshot, aliases))

    def text(self, accept: str) -> tuple[bytes, str]:
        """The text and its media type: OpenMetrics where the client accepts it.

        The library's own choice by the header raises on a malformed version, and writes `vllm:` as `vllm_`.
        """
        encode, media_type = FORMATS[OPENMETRICS in accept]
        return encode(self._registry, escaping="allow-utf-8"), media_type
