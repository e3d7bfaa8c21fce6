"""Log lines: whole facts, one line each, and never a prompt, an answer, a key or a query string."""

from __future__ import annotations

import json
import logging
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest
from tests.support.served import Served, served

from camelid.server.logs import (
    MAX_CONTENT_CHARS,
    MAX_LINES,
    JsonFormat,
    LogWriter,
    TextFormat,
    content,
    escaped,
)

CHAT = "/v1/chat/completions"
KEY, SECRET = "key-of-alice-93ab", "the marmalade manifesto 4711"
ASK: dict[str, Any] = {"messages": [{"role": "user", "content": SECRET}], "temperature": 0, "max_tokens": 8}


@dataclass
class Logged(Served):
    """A server whose standard error is read as it comes."""

    lines: list[str] = field(default_factory=list[str])


@contextmanager
def logged(*arguments: str, **environment: str) -> Iterator[Logged]:
    with served("--backend", "cpu", *arguments, **environment) as server:
        assert server.process.stderr
        found = Logged(server.process, server.url, server.http)
        stderr = server.process.stderr
        reader = threading.Thread(target=lambda: found.lines.extend(stderr))
        reader.start()
        yield found
        server.process.kill()
        reader.join()


def varied_session(server: Served) -> None:
    """Answers, streams, refusals of every kind, a client that leaves; all with the secret and the key."""
    good = {"authorization": f"Bearer {KEY}"}
    server.post(CHAT, ASK, **good)
    list(server.stream(CHAT, ASK | {"stream": True, "n": 2}, **good))
    for change in ({"messages": SECRET}, {"temperature": SECRET}, {"model": "other"}, {SECRET: 1}, {"n": 99}):
        server.post(CHAT, ASK | change, **good)
    server.http.post(CHAT, content=SECRET.encode(), headers=good)
    server.post(CHAT, {"messages": [{"role": SECRET, "content": SECRET}]}, **good)
    server.post(f"{CHAT}?prompt={SECRET}&api_key={KEY}", ASK, **good)
    server.get(f"/v1/models?{KEY}", **good)
    server.post(CHAT, ASK, authorization=f"Bearer x{KEY}")
    server.post(CHAT, ASK, **{"x-api-key": KEY})
    with server.http.stream(
        "POST", CHAT, json=ASK | {"stream": True, "max_tokens": 900}, headers=good
    ) as reply:
        next(reply.iter_lines())
    with suppress(httpx.HTTPError):
        server.http.post(CHAT, json=ASK, headers=good, timeout=0.001)


@pytest.mark.e2e
@pytest.mark.parametrize("log_format", ["text", "json"])
def test_a_whole_session_logs_no_secret(log_format: str) -> None:
    with logged("-v", "--log-format", log_format, "--api-key", KEY) as server:
        varied_session(server)
        server.get("/v1/stats", authorization=f"Bearer {KEY}")
        assert server.stop() in (0, 143)
    text = "\n".join(server.lines)
    assert text.count(CHAT) >= 12
    for part in (KEY, SECRET, "marmalade", "manifesto"):
        assert part not in text
    assert "key-1" in text, "the key's name is logged"


@pytest.mark.e2e
def test_a_line_has_the_facts_of_its_request() -> None:
    with logged("--log-format", "json") as server:
        reply = server.post(CHAT, ASK, **{"x-request-id": "mine-1"})
        server.post(CHAT, ASK | {"temperature": "hot"}, **{"x-request-id": "mine-2"})
        body = ASK | {"stream": True, "max_tokens": 900, "ignore_eos": True}
        with server.http.stream("POST", CHAT, json=body, headers={"x-request-id": "mine-3"}) as stream:
            next(stream.iter_lines())
        server.stop()
    by_id = {line["request_id"]: line for line in map(json.loads, server.lines) if "request_id" in line}
    usage, line = reply.json()["usage"], by_id["mine-1"]
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", line["time"])
    assert (line["key"], line["method"], line["path"], line["status"]) == ("anonymous", "POST", CHAT, 200)
    assert (line["model"], line["level"], line["logger"]) == ("cria", "info", "camelid.access")
    assert (line["prompt_tokens"], line["answer_tokens"]) == (
        usage["prompt_tokens"], usage["completion_tokens"],
    )  # fmt: skip
    assert line["finish_reason"] == reply.json()["choices"][0]["finish_reason"]
    assert 0 < line["queue_ms"] < line["ttft_ms"] < line["total_ms"]
    assert "client_gone" not in line
    assert by_id["mine-2"]["status"] == 400
    assert by_id["mine-2"]["error"] == "invalid_request_error"
    assert by_id["mine-3"]["client_gone"] is True
    assert by_id["mine-3"]["finish_reason"] == "cancelled"


@pytest.mark.e2e
def test_prompts_and_answers_are_logged_where_asked() -> None:
    with logged("--log-prompts", "--log-format", "text") as server:
        body = {"messages": [{"role": "user", "content": "one\nINFO forged: x"}], "max_tokens": 2}
        reply = server.post(CHAT, body)
        server.stop()
    (line,) = [line for line in server.lines if CHAT in line]
    assert "forged" in line
    assert not any(line.startswith("INFO forged") for line in server.lines)
    text = reply.json()["choices"][0]["message"]["content"]
    assert text
    assert "answer=" in line
    assert text.strip() in line.partition("answer=")[2]


@pytest.mark.e2e
def test_streamed_answers_and_tool_calls_are_logged() -> None:
    function = {"name": "add", "parameters": {"type": "object", "properties": {"a": {"type": "integer"}}}}
    calls = ASK | {"max_tokens": 40, "tool_choice": "required"} | {
        "tools": [{"type": "function", "function": function}]
    }  # fmt: skip
    with logged("--log-prompts", "--log-format", "json") as server:
        whole = server.post(CHAT, calls, **{"x-request-id": "calls"}).json()["choices"][0]["message"]
        chunks = list(server.stream(CHAT, ASK | {"stream": True, "n": 2}, **{"x-request-id": "stream"}))
        server.stop()
    by_id = {line["request_id"]: line for line in map(json.loads, server.lines) if "request_id" in line}
    (answer,) = json.loads(by_id["calls"]["answer"])
    (call,) = whole["tool_calls"]
    assert (answer["tool_calls"][0]["name"], "text" in answer) == ("add", False)
    assert answer["tool_calls"][0]["arguments"] == call["function"]["arguments"]
    texts = ["", ""]
    for choice in (choice for chunk in chunks for choice in chunk["choices"]):
        texts[choice["index"]] += choice["delta"].get("content") or ""
    assert all(texts)
    assert [answer["text"] for answer in json.loads(by_id["stream"]["answer"])] == texts


def test_a_long_text_is_cut() -> None:
    assert content(["short"]) == '["short"]'
    assert len(content(["x" * 100_000])) == MAX_CONTENT_CHARS


@pytest.mark.e2e
def test_no_client_forges_a_line() -> None:
    with logged("--log-format", "text") as server:
        for path in ("/a%0aforged", "/%1b[2Jforged", "/x%E2%80%A8forged", "/ status=200 forged"):
            server.get(path)
        server.stop()
    lines = [line for line in server.lines if "forged" in line]
    assert len(lines) == 4
    for line in lines:
        assert line.rstrip("\n").isprintable()
        assert re.match(r"\d{4}-.*Z info camelid\.access: request request_id=req_", line)
        assert line.count(" status=404 ") == 1


def test_characters_that_end_or_hide_a_line_are_escaped() -> None:
    for code in (*range(32), 127, 0x85, 0x2028, 0x2029, 0x202E, 0xFEFF, 0xD800):
        assert escaped(f"a{chr(code)}b").isprintable()
    assert escaped("a\nb") == "a\\nb"
    assert escaped("plain äöü 漢字") == "plain äöü 漢字"


def log_record(message: str, error: Exception | None = None) -> logging.LogRecord:
    info = (type(error), error, None) if error else None
    return logging.LogRecord("camelid.server", logging.ERROR, "f.py", 1, message, (), info)


def test_a_traceback_stays_marked() -> None:
    text = TextFormat().format(log_record("x\ny", ValueError("bad\n2026 forged")))
    first, *rest = text.split("\n")
    assert first.endswith("error camelid.server: x\\ny")
    assert rest
    assert all(line.startswith("  | ") for line in rest)
    found = json.loads(JsonFormat().format(log_record("x\ny", ValueError("bad\nforged"))))
    assert found["message"] == "x\ny"
    assert "forged" in found["traceback"]


def test_a_reader_that_stops_loses_lines_and_stops_nothing() -> None:
    stopped, seen = threading.Event(), list[bytes]()

    def write(data: bytes) -> None:
        stopped.wait(20)
        seen.append(data)

    writer = LogWriter("text", write)
    for i in range(MAX_LINES + 500):
        writer.emit(log_record(f"line {i}"))
    assert 200 <= writer.n_dropped <= 500
    stopped.set()
    writer.close()
    lines = b"".join(seen).splitlines()
    assert len(lines) == MAX_LINES + 500 - writer.n_dropped
    assert lines[0].endswith(b"line 0")
