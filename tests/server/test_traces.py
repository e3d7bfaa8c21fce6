"""Spans: GenAI attributes, the client's trace as parent, no content unless asked, over real OTLP/HTTP."""

from __future__ import annotations

import gzip
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace
from typing import Any, cast

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from starlette.datastructures import Headers
from tests.support.served import served

from camelid.errors import BackendError
from camelid.server.metrics.record import Record
from camelid.server.operations import open_operations
from camelid.server.operations_settings import OperationsSettings, otel_of
from camelid.server.traces import Traces

CHAT, SECRET = "/v1/chat/completions", "the marmalade manifesto"
TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


def job(prompt: Any = SECRET, **options: Any) -> Any:
    started = SimpleNamespace(
        job=SimpleNamespace(prompt=prompt, options=options, n=2), service=SimpleNamespace(name="m")
    )
    return SimpleNamespace(
        started=started, n_prompt=10, n_cached=4, n_answer=[3, 2], queue_s=0.25, ttft_s=0.5, first=100.5,
        reasons={0: "stop", 1: "length"}, texts={0: SECRET, 1: SECRET},
    )  # fmt: skip


def record(jobs: list[Any], *, status: int = 200, code: str = "", **headers: str) -> Record:
    scope = {"method": "POST", "path": CHAT}
    call = SimpleNamespace(scope=scope, headers=Headers(headers), request_id="req_1", path=CHAT)
    return Record(
        cast(Any, call), at=1000.0, start=100.0, jobs=jobs, path=CHAT, status=status, code=code, seconds=2.0
    )


def span_of(made: Record, *, with_content: bool = False) -> Any:
    exporter = InMemorySpanExporter()
    traces = Traces(exporter, with_content=with_content)
    traces(made)
    traces._provider.force_flush()
    (span,) = exporter.get_finished_spans()
    traces.close()
    return span


def test_a_span_has_the_conventions_attributes() -> None:
    messages = [{"role": "user", "content": SECRET}]
    made = job(messages, temperature=0.5, max_tokens=7, stop=[SECRET])
    span = span_of(record([made], traceparent=f"00-{TRACE}-{PARENT}-01"))
    assert span.name == "chat m"
    assert span.kind.name == "SERVER"
    wanted = {
        "gen_ai.operation.name": "chat", "gen_ai.provider.name": "camelid", "gen_ai.request.model": "m",
        "gen_ai.response.model": "m", "gen_ai.usage.input_tokens": 10, "gen_ai.usage.output_tokens": 5,
        "gen_ai.usage.cache_read.input_tokens": 4, "gen_ai.response.finish_reasons": ("stop", "length"),
        "gen_ai.request.temperature": 0.5, "gen_ai.request.max_tokens": 7, "gen_ai.request.choice.count": 2,
        "gen_ai.server.time_to_first_token": 0.5, "http.response.status_code": 200, "http.route": CHAT,
    }  # fmt: skip
    assert {name: span.attributes[name] for name in wanted} == wanted
    assert SECRET not in str(dict(span.attributes))
    assert format(span.context.trace_id, "032x") == TRACE
    assert format(span.parent.span_id, "016x") == PARENT
    assert (span.start_time, span.end_time) == (1000 * 10**9, 1002 * 10**9)
    assert [(event.name, event.timestamp) for event in span.events] == [("first token", 1000_500_000_000)]
    assert span.resource.attributes["service.name"] == "camelid"


def test_content_is_there_where_asked() -> None:
    span = span_of(record([job("a text")]), with_content=True)
    assert span.name == "text_completion m"
    assert "a text" in span.attributes["gen_ai.input.messages"]
    assert SECRET in span.attributes["gen_ai.output.messages"]


@pytest.mark.parametrize(("status", "is_error"), [(400, False), (500, True), (503, True)])
def test_a_refusal_is_a_span_of_its_path(status: int, is_error: bool) -> None:
    span = span_of(record([], status=status, code="why", traceparent="nonsense"))
    assert span.name == f"POST {CHAT}"
    assert span.attributes["error.type"] == "why"
    assert span.status.is_ok != is_error or not is_error
    assert (span.status.status_code.name == "ERROR") == is_error
    assert span.parent is None


def test_the_environment_names_a_receiver() -> None:
    assert otel_of(None, {}) == ""
    assert otel_of("http://x/", {}) == "http://x"
    named = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://y"}
    assert otel_of(None, named) == "environment"
    assert otel_of(None, {**named, "OTEL_SDK_DISABLED": "true"}) == ""


def test_without_the_extra_a_flag_fails_and_the_environment_warns(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for name in [name for name in sys.modules if name.startswith("opentelemetry")]:
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http.trace_exporter", None)
    with pytest.raises(BackendError, match=r"pip install 'camelid\[otel\]'"):
        open_operations(OperationsSettings(otel="http://127.0.0.1:1"))
    with caplog.at_level("WARNING", "camelid.server"):
        assert open_operations(OperationsSettings(otel="environment")).traces is None
    assert "camelid[otel]" in caplog.text


class Receiver(ThreadingHTTPServer):
    """An OTLP/HTTP receiver on loopback."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.paths, self.spans = list[str](), list[Any]()


class Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        if self.headers.get("content-encoding") == "gzip":
            body = gzip.decompress(body)
        asked = ExportTraceServiceRequest.FromString(body)
        receiver = cast(Receiver, self.server)
        receiver.paths.append(self.path)
        for resource in asked.resource_spans:
            for scope in resource.scope_spans:
                receiver.spans += scope.spans
        self.send_response(200)
        self.end_headers()

    def log_message(self, *args: Any) -> None:
        pass


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.mark.e2e
@pytest.mark.parametrize("by_flag", [True, False], ids=["flag", "environment"])
def test_a_server_sends_its_spans(receiver: Receiver, by_flag: bool) -> None:
    url = f"http://127.0.0.1:{receiver.server_port}"
    flags = ("--otel", url) if by_flag else ()
    environment = {} if by_flag else {"OTEL_EXPORTER_OTLP_ENDPOINT": url}
    with served("--backend", "cpu", *flags, **environment) as server:
        body = {"messages": [{"role": "user", "content": SECRET}], "max_tokens": 5, "temperature": 0}
        headers = {"traceparent": f"00-{TRACE}-{PARENT}-01"}
        usage = server.post(CHAT, body, **headers).json()["usage"]
        list(server.stream(CHAT, body | {"stream": True}, **headers))
        server.get("/metrics")
        server.stop()
    assert set(receiver.paths) == {"/v1/traces"}
    assert [span.name for span in receiver.spans] == ["chat cria"] * 2
    for span in receiver.spans:
        assert span.trace_id.hex() == TRACE
        assert span.parent_span_id.hex() == PARENT
        values = {each.key: each.value for each in span.attributes}
        assert values["gen_ai.usage.input_tokens"].int_value == usage["prompt_tokens"]
        assert values["gen_ai.usage.output_tokens"].int_value == usage["completion_tokens"]
        assert SECRET not in str(span)


@pytest.mark.e2e
def test_a_dead_receiver_stops_no_request() -> None:
    with served("--backend", "cpu", "--otel", "http://127.0.0.1:9") as server:
        for _ in range(3):
            assert server.post(
                CHAT, {"messages": [{"role": "user", "content": "x"}], "max_tokens": 2}
            ).is_success
        assert server.stop(timeout=25) in (0, 143)
