"""Metrics, spans and log lines of a server, behind one object."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable
from dataclasses import dataclass, field

from camelid.errors import BackendError
from camelid.server.http.call import Call
from camelid.server.http.errors import ApiError
from camelid.server.logs import LogWriter, log_access
from camelid.server.metrics.aliases import ALIASES
from camelid.server.metrics.exposition import Exposition
from camelid.server.metrics.record import CURRENT, Record
from camelid.server.metrics.snapshot import Snapshot
from camelid.server.metrics.tally import Tally
from camelid.server.operations_settings import OperationsSettings
from camelid.server.service.models import Entry
from camelid.server.traces import Traces, open_traces

LOG = logging.getLogger("camelid.server")
REFUSED = (429, 503)


@dataclass(slots=True)
class Operations:
    """Counts, spans and lines of one server. `tally` is its observer of jobs."""

    settings: OperationsSettings = field(default_factory=OperationsSettings)
    writer: LogWriter | None = None
    traces: Traces | None = None
    tally: Tally = field(default_factory=Tally)
    exposition: Exposition | None = None
    started: float = field(default_factory=time.time)
    _entries: Iterable[Entry] = ()

    def attach(self, entries: Iterable[Entry]) -> None:
        """Begins with a server's models."""
        self._entries = entries
        if self.settings.metrics:
            self.exposition = Exposition(self.snapshot, self.settings.metrics_names)

    def snapshot(self) -> Snapshot:
        """The facts of this moment."""
        dropped = self.writer.n_dropped if self.writer else 0
        return Snapshot.of(self.tally, self._entries, dropped, self.started)

    def begin(self, call: Call) -> Record:
        """Opens the record of a call; the call's task and its child tasks see it."""
        record = Record(call)
        CURRENT.set(record)
        return record

    def end(self, record: Record, status: int, error: ApiError | None) -> None:
        """Counts a call, and writes its line and its span."""
        record.seconds = time.monotonic() - record.start
        record.status, record.code = status, (error.code or error.type) if error else ""
        route = record.call.scope.get("camelid.route")
        record.path = route.path if route else "other"
        # a method of the client's invention would be a new label
        method = record.method if route else "other"
        self.tally.replies[record.path, method, status] += 1
        if error and status in REFUSED:
            self.tally.refusals[record.path, record.code] += 1
        log_access(record, with_content=self.settings.log_prompts)
        if self.traces:
            self.traces(record)

    def close(self) -> None:
        """Sends the waiting spans and writes the waiting lines."""
        if self.traces:
            self.traces.close()
        if self.writer:
            logging.getLogger().removeHandler(self.writer)
            self.writer.close()


def open_operations(settings: OperationsSettings, writer: LogWriter | None = None) -> Operations:
    """The operations of these settings.

    Raises BackendError for --otel without its extra; an endpoint in the environment alone is then a warning.
    """
    assert set(settings.metrics_names) <= set(ALIASES), "the flag's choices"
    found = Operations(settings, writer)
    if settings.otel:
        try:
            found.traces = open_traces(settings.otel, with_content=settings.otel_content)
        except BackendError as error:
            if settings.otel != "environment":
                raise
            LOG.warning("OpenTelemetry's variables are set, but %s", error.message)
    return found
