"""OpenTelemetry spans with the GenAI conventions, one per POST, made from its record after its end.

So a token costs nothing here. The parent is the client's `traceparent`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any

from camelid.errors import BackendError
from camelid.requests.output_text import ChatPrompt
from camelid.server.metrics.record import Record
from camelid.server.service.job import Job
from camelid.server.service.service import Started
from camelid.version import __version__

MAX_CONTENT_CHARS = 16_384
FLUSH_MS = 2000
PARENT = ("traceparent", "tracestate")
NS = 1_000_000_000
# Option of a request -> attribute of its span. Texts (stop sequences) are content, and none of these.
OPTIONS: Mapping[str, str] = {
    "max_tokens": "gen_ai.request.max_tokens",
    "temperature": "gen_ai.request.temperature",
    "top_p": "gen_ai.request.top_p",
    "top_k": "gen_ai.request.top_k",
    "seed": "gen_ai.request.seed",
    "frequency_penalty": "gen_ai.request.frequency_penalty",
    "presence_penalty": "gen_ai.request.presence_penalty",
}
Attributes = dict[str, Any]


def operation(job: Job) -> str:
    """The conventions' name of what was asked: a conversation's next message, or a text's rest."""
    prompt = job.prompt
    is_messages = isinstance(prompt, list | tuple) and bool(prompt) and isinstance(prompt[0], Mapping)
    return "chat" if is_messages or isinstance(prompt, ChatPrompt) else "text_completion"


def call_attributes(record: Record) -> Attributes:
    """The attributes of every call."""
    found: Attributes = {
        "http.request.method": record.method, "http.route": record.path,
        "http.response.status_code": record.status, "camelid.request.id": record.call.request_id,
    }  # fmt: skip
    if record.status >= 400:
        found["error.type"] = record.code or str(record.status)
    return found


def job_attributes(record: Record, *, with_content: bool) -> Attributes:
    """The attributes of a call's jobs."""
    live = record.jobs[0]
    job, name = live.started.job, live.started.service.name
    found: Attributes = {
        "gen_ai.operation.name": operation(job),
        "gen_ai.provider.name": "camelid",
        "gen_ai.request.model": name,
        "gen_ai.response.model": name,
        "gen_ai.response.finish_reasons": record.reasons,
        "gen_ai.usage.input_tokens": record.n_prompt,
        "gen_ai.usage.output_tokens": record.n_answer,
        "gen_ai.usage.cache_read.input_tokens": record.n_cached,
        "camelid.queue_time": live.queue_s,
    }
    if live.first:
        found["gen_ai.server.time_to_first_token"] = live.ttft_s
    if job.n > 1:
        found["gen_ai.request.choice.count"] = job.n
    found |= dict(option_attributes(live.started))
    return found | (content_attributes(record) if with_content else {})


def option_attributes(started: Started) -> Iterator[tuple[str, object]]:
    """The numbers that a request set."""
    for option, attribute in OPTIONS.items():
        value = started.job.options.get(option)
        if isinstance(value, int | float):
            yield attribute, value


def content_attributes(record: Record) -> Attributes:
    """Prompts and answers, cut where they are long."""
    asked = [live.started.job.prompt for live in record.jobs]
    answered = [live.texts[choice] for live in record.jobs for choice in sorted(live.texts)]
    return {
        "gen_ai.input.messages": json.dumps(asked, ensure_ascii=False, default=str)[:MAX_CONTENT_CHARS],
        "gen_ai.output.messages": json.dumps(answered, ensure_ascii=False)[:MAX_CONTENT_CHARS],
    }


class Traces:
    """Makes and sends the spans of one server; no provider of the process is touched."""

    def __init__(self, exporter: Any, *, with_content: bool = False) -> None:
        self._api = import_module("opentelemetry.trace")
        context = import_module("opentelemetry.trace.propagation.tracecontext")
        export = import_module("opentelemetry.sdk.trace.export")
        self._provider = provider_of()
        self._provider.add_span_processor(export.BatchSpanProcessor(exporter))
        self._tracer = self._provider.get_tracer("camelid", __version__)
        self._extract = context.TraceContextTextMapPropagator().extract
        self._with_content = with_content

    def __call__(self, record: Record) -> None:
        """Makes the span of a call."""
        if record.method != "POST":
            return
        attributes, name = call_attributes(record), f"POST {record.path}"
        if record.jobs:
            attributes |= job_attributes(record, with_content=self._with_content)
            name = f"{attributes['gen_ai.operation.name']} {attributes['gen_ai.request.model']}"
        start = int(record.at * NS)
        span = self._tracer.start_span(
            name, self._parent(record), self._api.SpanKind.SERVER, attributes=attributes, start_time=start
        )
        first = record.jobs[0].first if record.jobs else 0.0
        if first:
            span.add_event("first token", timestamp=start + int((first - record.start) * NS))
        if record.status >= 500 or "error" in record.reasons:
            span.set_status(self._api.StatusCode.ERROR)
        span.end(start + int(record.seconds * NS))

    def _parent(self, record: Record) -> Any:
        headers = record.call.headers
        return self._extract({name: headers[name] for name in PARENT if name in headers})

    def close(self) -> None:
        """Sends the waiting spans, for at most two seconds."""
        self._provider.force_flush(FLUSH_MS)
        self._provider.shutdown()


def provider_of() -> Any:
    """A provider of our own; the environment may name the service and choose a sampler."""
    resource = import_module("opentelemetry.sdk.resources").Resource
    named = str(resource.create().attributes.get("service.name", ""))
    own = {"service.version": __version__}
    if named.startswith("unknown_service"):
        own["service.name"] = "camelid"
    provider = import_module("opentelemetry.sdk.trace").TracerProvider
    return provider(resource=resource.create(own), shutdown_on_exit=False)


def open_traces(otel: str, *, with_content: bool) -> Traces:
    """Spans to a receiver: a base URL, or "environment". Raises BackendError without the extra `otel`."""
    try:
        exporter = import_module("opentelemetry.exporter.otlp.proto.http.trace_exporter").OTLPSpanExporter
        address = () if otel == "environment" else (f"{otel}/v1/traces",)
        return Traces(exporter(*address), with_content=with_content)
    except ModuleNotFoundError as error:
        raise BackendError(
            f"spans need {error.name}: pip install 'camelid[otel]'", backend="server"
        ) from error
