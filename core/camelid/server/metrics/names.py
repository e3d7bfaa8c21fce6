"""The metrics under Camelid's own names."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from camelid.server.metrics.family import (
    AnyRow,
    HistogramRow,
    Histograms,
    Labels,
    Row,
    Samples,
    per_model,
    per_reason,
    per_series,
    series_histograms,
)
from camelid.server.metrics.snapshot import STATES, Snapshot, resident_bytes
from camelid.version import __version__

WHERE: Labels = ("endpoint", "model")
MODEL: Labels = ("model",)


def kv_bytes(snapshot: Snapshot) -> Iterator[tuple[Labels, float]]:
    """Bytes of the KV cache: held by requests, cached for prefixes, and free."""
    for model in snapshot.models:
        load = model.load
        free = max(load.total_bytes - load.held_bytes - load.cached_bytes, 0)
        for kind, value in (("held", load.held_bytes), ("cached", load.cached_bytes), ("free", free)):
            yield (model.name, kind), value


def states(snapshot: Snapshot) -> Iterator[tuple[Labels, float]]:
    """1 for the state that a model is in, 0 for the others."""
    for model in snapshot.models:
        for state in STATES:
            yield (model.name, state), float(model.state == state)


def rows_of_steps(snapshot: Snapshot) -> Iterator[tuple[Labels, float]]:
    """Rows computed by each program."""
    for model in snapshot.models:
        for program, steps in model.steps():
            yield (model.name, program), steps.n_rows


def step_histograms(snapshot: Snapshot) -> Histograms:
    """The seconds of the steps of each program."""
    return [
        ((model.name, program), steps.seconds)
        for model in snapshot.models
        for program, steps in model.steps()
    ]


def engine_total(field: str) -> Callable[[Snapshot], Samples]:
    """One of the engine's counters."""
    return per_model(lambda model: getattr(model.totals, field))


def replies(snapshot: Snapshot) -> Iterator[tuple[Labels, float]]:
    """HTTP replies."""
    for (path, method, status), n in snapshot.tally.replies.items():
        yield (path, method, str(status)), n


def rss(snapshot: Snapshot) -> Iterator[tuple[Labels, float]]:  # noqa: ARG001 - the rows' signature
    """The process's memory, where the system reports it."""
    value = resident_bytes()
    if value is not None:
        yield (), value


HISTOGRAMS: tuple[AnyRow, ...] = (
    HistogramRow("camelid_time_to_first_token_seconds", "Time from a request's place in the queue to its "
                 "first token", WHERE, series_histograms(lambda s: s.first_token)),
    HistogramRow("camelid_inter_token_seconds", "Time between two tokens of an answer; tokens that arrive "
                 "together share it", WHERE, series_histograms(lambda s: s.inter_token)),
    HistogramRow("camelid_request_seconds", "Time from a request's place in the queue to its end",
                 WHERE, series_histograms(lambda s: s.whole)),
    HistogramRow("camelid_queue_seconds", "Time from a request's submission to its first step",
                 WHERE, series_histograms(lambda s: s.queue)),
    HistogramRow("camelid_request_prompt_tokens", "Tokens of a request's prompt",
                 WHERE, series_histograms(lambda s: s.prompt_tokens)),
    HistogramRow("camelid_request_answer_tokens", "Tokens of an answer",
                 WHERE, series_histograms(lambda s: s.answer_tokens)),
    HistogramRow("camelid_step_seconds", "Time of an engine step", ("model", "program"), step_histograms),
)  # fmt: skip
REQUESTS: tuple[AnyRow, ...] = (
    Row("counter", "camelid_prompt_tokens_total", "Prompt tokens of requests whose answer began",
        WHERE, per_series(lambda s: s.n_prompt)),
    Row("counter", "camelid_cached_prompt_tokens_total", "Prompt tokens that came from the prefix cache",
        WHERE, per_series(lambda s: s.n_cached)),
    Row("counter", "camelid_answer_tokens_total", "Tokens of answers",
        WHERE, per_series(lambda s: s.n_answer)),
    Row("counter", "camelid_answers_total", "Ended answers by the reason of their end",
        (*WHERE, "finish_reason"), per_reason),
    Row("counter", "camelid_cancellations_total", "Requests whose client was gone before their end",
        WHERE, per_series(lambda s: s.n_cancelled)),
    Row("counter", "camelid_http_replies_total", "HTTP replies; status 499: the client was gone first",
        ("path", "method", "status"), replies),
    Row("counter", "camelid_refusals_total", "Requests refused because of a budget or the server's load",
        ("path", "code"), lambda snapshot: snapshot.tally.refusals.items()),
)  # fmt: skip
ENGINE: tuple[AnyRow, ...] = tuple(
    Row("counter", f"camelid_{name}_total", text, MODEL, engine_total(field))
    for name, text, field in (
        ("prefix_cache_hits", "Requests that began after a prefix-cache hit", "prefix_hits"),
        ("prefix_cache_hit_tokens", "Prompt tokens found in the prefix cache", "cached_rows"),
        ("prefill_tokens", "Prompt tokens computed", "prefill_rows"),
        ("preemptions", "Sequences preempted because no unit of the KV cache was free", "preemptions"),
        ("evictions", "Units evicted from the prefix cache", "evicted_units"),
        ("context_shifts", "Sequences whose oldest tokens were dropped for new ones", "shifted"),
        ("drafted_tokens", "Draft tokens verified", "drafted"),
        ("accepted_tokens", "Draft tokens accepted", "accepted"),
        ("failed_steps", "Steps that failed", "failed_steps"),
        ("timeouts", "Sequences ended by a time limit", "timeouts"),
    )
)  # fmt: skip
STATE: tuple[AnyRow, ...] = (
    Row("counter", "camelid_prefix_cache_query_tokens_total", "Prompt tokens looked up in the prefix cache",
        MODEL, per_model(lambda m: m.totals.cached_rows + m.totals.prefill_rows)),
    Row("counter", "camelid_step_rows_total", "Rows computed by steps", ("model", "program"), rows_of_steps),
    Row("gauge", "camelid_requests_running", "Sequences that run",
        MODEL, per_model(lambda m: m.load.n_running)),
    Row("gauge", "camelid_requests_waiting", "Sequences that wait for the engine",
        MODEL, per_model(lambda m: m.load.n_waiting)),
    Row("gauge", "camelid_places_taken", "Places taken by requests that run or wait",
        MODEL, per_model(lambda m: m.n_places)),
    Row("gauge", "camelid_places", "Places for requests that run or wait", MODEL,
        per_model(lambda m: m.n_capacity)),
    Row("gauge", "camelid_kv_cache_bytes", "Bytes of the KV cache: held, cached for prefixes, free",
        ("model", "use"), kv_bytes),
    Row("gauge", "camelid_kv_cache_used_ratio", "Share of the KV cache held by requests",
        MODEL, per_model(lambda m: m.kv_share)),
    Row("gauge", "camelid_model_state", "1 for the state that a model is in", ("model", "state"), states),
    Row("gauge", "camelid_resident_memory_bytes", "Bytes of the process in memory", (), rss),
    Row("gauge", "camelid_start_time_seconds", "Time of the server's start, in seconds of the epoch",
        (), lambda snapshot: [((), snapshot.started)]),
    Row("gauge", "camelid_build_info", "The server's version",
        ("version",), lambda _: [((__version__,), 1.0)]),
    Row("counter", "camelid_log_lines_dropped_total", "Log lines dropped because their reader was too slow",
        (), lambda snapshot: [((), snapshot.n_lines_dropped)]),
)  # fmt: skip
CAMELID: tuple[AnyRow, ...] = (*HISTOGRAMS, *REQUESTS, *ENGINE, *STATE)
