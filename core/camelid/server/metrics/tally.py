"""The observer that counts: jobs on the server's loop, steps on the engines' threads."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator

from camelid.server.metrics.live import Live, ModelTally, Series
from camelid.server.metrics.record import current_record
from camelid.server.service.host import Batch
from camelid.server.service.service import Service, Started


class Tally:
    """An `Observer` that counts events; all but steps on the server's loop."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self.now = now
        self.series: dict[tuple[str, str], Series] = {}  # by endpoint and model
        self.models: dict[str, ModelTally] = {}
        self.replies: Counter[tuple[str, str, int]] = Counter()  # by path, method and status
        self.refusals: Counter[tuple[str, str]] = Counter()  # by path and code
        self._live: dict[Started, Live] = {}

    def model(self, name: str) -> ModelTally:
        """The counts of a model."""
        return self.models.setdefault(name, ModelTally())

    def loaded(self, service: Service) -> None:
        """Watches a model's engine from its first step."""
        self.model(service.name).follow(service)

    def of_model(self, name: str) -> Iterator[Series]:
        """The series of a model, over all endpoints."""
        return (series for (_, model), series in self.series.items() if model == name)

    def submitted(self, started: Started) -> None:
        """A job was queued."""
        self.loaded(started.service)
        job, name = started.job, started.service.name
        series = self.series.setdefault((job.endpoint, name), Series())
        live = self._live[started] = Live(
            started, series, self.model(name), started.request.n_read, set(range(job.n)), [0.0] * job.n,
            [0] * job.n,
        )  # fmt: skip
        record = current_record()
        if record:
            record.jobs.append(live)

    def advanced(self, started: Started, batch: Batch) -> None:
        """Events of one choice arrived."""
        live, events = self._live.get(started), batch.events
        if live is None:
            return
        # text withheld until the end is an event without a token
        n = len(events) - 1 if events and events[-1].token_id is None else len(events)
        if n:
            live.arrive(batch.choice, n, self.now())
        if batch.completion:
            live.end(batch.choice, batch.completion)
        elif batch.error:
            live.open.discard(batch.choice)
            live.conclude(batch.choice, "error")

    def closed(self, started: Started) -> None:
        """The job ended; choices without an end were cancelled by the client."""
        live = self._live.pop(started, None)
        if live is None:
            return
        live.series.n_cancelled += bool(live.open)
        for choice in sorted(live.open):
            live.conclude(choice, "cancelled")
        live.ended = self.now()
        live.series.whole.observe(live.ended - started.place.entered)
