"""The server process: loading, draining, signals, TLS, hosts, and an end at any time."""

from __future__ import annotations

import os
import re
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from shutil import which
from typing import Any

import httpx
import pytest
from tests.support.exhaustive import every
from tests.support.served import ROOT, Served, served

PATH = "/v1/chat/completions"
ASK: list[Any] = [{"role": "user", "content": "Tell me a story."}]
# As `camelid serve`, but the load of a model blocks its thread for a minute.
BLOCKED = """
import sys, time
from camelid.server.service import host
async def start(*_):
    time.sleep(60)
host.start = start
from camelid.cli.main import main
main(["serve", *sys.argv[1:]])
"""
NO_SIGNALS = pytest.mark.skipif(sys.platform == "win32", reason="no such signals")
pytestmark = [pytest.mark.faults, pytest.mark.slow, NO_SIGNALS]


def body(n: int = 60, **more: Any) -> dict[str, Any]:
    return {"messages": ASK, "max_tokens": n, "ignore_eos": True, "temperature": 0, **more}


@pytest.fixture
def slow() -> Iterator[Served]:
    """A server whose answers take a second or so; of 1,000,000 tokens, minutes."""
    flags = ("--parallel", "4", "--context-shift", "--drain", "60")
    with served("--backend", "reference", *flags) as server:
        yield server


class Streams:
    """Several streamed answers at once, in threads."""

    def __init__(self, server: Served, n: int, n_tokens: int) -> None:
        self._server, self._n_tokens = server, n_tokens
        self._begun = [threading.Event() for _ in range(n)]
        self._pool = ThreadPoolExecutor(n)
        self.results = [self._pool.submit(self._read, i) for i in range(n)]
        assert all(begun.wait(60) for begun in self._begun)

    def _read(self, i: int) -> list[dict[str, Any]]:
        chunks: list[dict[str, Any]] = []
        for chunk in self._server.stream(PATH, body(self._n_tokens, stream=True)):
            chunks.append(chunk)
            if len(chunks) > 2:
                self._begun[i].set()
        return chunks

    def are_cut(self) -> None:
        """Asserts that each was cut, or ended by an error: never as if it were whole."""
        for result in self.results:
            error = result.exception(20)
            assert isinstance(error, httpx.HTTPError) or result.result()[-1]["error"]["code"] == "unloaded"


def test_a_drain_ends_every_stream_whole_and_refuses_new_requests(slow: Served) -> None:
    whole = slow.post(PATH, body(80)).json()["choices"][0]["message"]["content"]
    streams = Streams(slow, 4, 80)
    slow.process.send_signal(signal.SIGTERM)
    until_draining(slow)
    refused = slow.post(PATH, body(1))
    assert refused.status_code == 503
    assert int(refused.headers["retry-after"]) >= 1
    assert refused.headers["x-should-retry"] == "true"
    for path, status in {"/live": 200, "/health": 503, "/ready": 503, "/v2/health/live": 200}.items():
        assert slow.get(path).status_code == status
    for result in streams.results:
        chunks = result.result(60)
        assert "".join(chunk["choices"][0]["delta"].get("content") or "" for chunk in chunks) == whole
        assert chunks[-1]["choices"][0]["finish_reason"] == "length"
    assert slow.process.wait(20) == 0


def until_draining(server: Served) -> None:
    end = time.monotonic() + 10
    while server.get("/health").status_code == 200:
        assert time.monotonic() < end, "the signal did not begin a drain"


def test_a_second_signal_ends_at_once(slow: Served) -> None:
    streams = Streams(slow, 2, 1_000_000)
    slow.process.send_signal(signal.SIGTERM)
    until_draining(slow)
    begin = time.monotonic()
    slow.process.send_signal(signal.SIGTERM)
    assert slow.process.wait(20) == 0
    assert time.monotonic() - begin < 5
    streams.are_cut()


def test_a_drain_has_a_bound() -> None:
    with served("--backend", "reference", "--context-shift", "--drain", "0.3") as server:
        streams = Streams(server, 2, 1_000_000)
        begin = time.monotonic()
        assert server.stop() == 0
        assert time.monotonic() - begin < 8
        streams.are_cut()


def test_an_idle_server_ends_at_once_by_either_signal() -> None:
    for sig in (signal.SIGTERM, signal.SIGINT):
        with served("--backend", "cpu") as server:
            server.get("/health")  # a connection that stays open
            begin = time.monotonic()
            assert server.stop(sig) == 0
            assert time.monotonic() - begin < 4, "without a wait for the connection"


def test_a_killed_server_starts_again_on_its_port() -> None:
    with served("--backend", "cpu") as server:
        port = httpx.URL(server.url).port
        streams = ThreadPoolExecutor(1).submit(lambda: list(server.stream(PATH, body(900, stream=True))))
        time.sleep(0.1)
        assert server.stop(signal.SIGKILL) == -signal.SIGKILL
        assert streams.exception(20) or streams.result()
        with served("--backend", "cpu", CAMELID_SERVE_PORT=str(port)) as other:
            assert other.post(PATH, body(4)).status_code == 200


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


def test_a_server_that_loads_says_so_and_ends_promptly() -> None:
    port = free_port()
    paths = os.pathsep.join(str(ROOT / name) for name in ("core", "native"))
    process = subprocess.Popen(
        [sys.executable, "-c", BLOCKED, "--port", str(port)],
        stderr=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": paths},
    )  # fmt: skip
    try:
        with httpx.Client(
            base_url=f"http://127.0.0.1:{port}", transport=httpx.HTTPTransport(retries=20)
        ) as http:
            health = first_reply(http, "/health")
            assert (health.status_code, health.json()) == (
                503, {"error": {"code": 503, "message": "Loading model", "type": "unavailable_error"}}
            )  # fmt: skip
            asked = http.post(PATH, json=body(1))
            assert (asked.status_code, asked.json()["error"]["message"]) == (503, "Loading model")
            assert asked.headers["retry-after"] == "1"
            assert http.get("/live").status_code == 200
            assert http.get("/v1/models").json()["data"][0]["status"] == {"value": "loading"}
            begin = time.monotonic()
            process.send_signal(signal.SIGTERM)
            _, lines = process.communicate(timeout=20)
            assert process.returncode == 0
            assert time.monotonic() - begin < 5
            assert "serving" not in lines
            assert "Traceback" not in lines
    finally:
        process.kill()
        process.communicate()


def first_reply(http: httpx.Client, path: str) -> httpx.Response:
    """The reply of a server that may not listen yet."""
    end = time.monotonic() + 20
    while True:
        try:
            return http.get(path)
        except httpx.ConnectError:
            assert time.monotonic() < end, "the server does not listen"
            time.sleep(0.05)


def failed_start(*arguments: str) -> str:
    """The last line of a server that cannot start."""
    paths = os.pathsep.join(str(ROOT / name) for name in ("core", "native"))
    done = subprocess.run(
        [sys.executable, "-m", "camelid", "serve", "--port", "0", *arguments],
        capture_output=True, text=True, env={**os.environ, "PYTHONPATH": paths}, timeout=60,
    )  # fmt: skip
    assert done.returncode == 1, done.stderr
    return done.stderr.splitlines()[-1]


@pytest.mark.parametrize(
    ("arguments", "line"),
    every(2, [
        (["nowhere.gguf"], "nowhere.gguf: there is no such file"),
        (["--models-dir", "/nowhere"], "/nowhere of --models-dir cannot be read"),
        (["--api-key-file", "/nowhere"], "the key file /nowhere cannot be read"),
        (["--chat-template-file", "/nowhere"], "the chat template /nowhere cannot be read"),
        (["--chat-template", "chatmll"], "no template has this name"),
        (["--chat-template", "{% for %}"], "template"),
        (["--samplers", "nonsense"], "order"),
        (["--memory", "1M"], "all models may hold 1,000,000"),
        (["--tls-cert", "/nowhere", "--tls-key", "/nowhere"], "the TLS certificate /nowhere"),
        (["--host", "203.0.113.1", "--no-auth"], "cannot listen on 203.0.113.1"),
        (["a=cria", "a=cria"], "two models or adapters have the name 'a'"),
    ]),
)  # fmt: skip
def test_a_start_that_fails_says_why(arguments: list[str], line: str) -> None:
    found = failed_start(*arguments)
    assert found.startswith("camelid: error: ")
    assert line in found


def test_an_open_server_warns() -> None:
    process = None
    paths = os.pathsep.join(str(ROOT / name) for name in ("core", "native"))
    command = [sys.executable, "-m", "camelid", "serve", "--host", "0.0.0.0", "--port", "0", "--no-auth"]
    process = subprocess.Popen(
        [*command, "--backend", "cpu"], stderr=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONPATH": paths},
    )  # fmt: skip
    assert process.stderr is not None
    try:
        lines = [process.stderr.readline() for _ in range(3)]
    finally:
        process.kill()
        process.communicate()
    assert "warning: 0.0.0.0 is open to every machine" in lines[0]
    assert re.search(r"cria: cpu on .*; context 1024, 4 at once", lines[1])
    assert re.search(r"serving cria at http://0\.0\.0\.0:\d+", lines[2])


def test_keys_are_read_again(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text("one:first\n")
    with served("--backend", "cpu", "--api-key-file", str(file)) as server:
        assert status_with(server, "first") == 200
        file.write_text("two:second\n")
        server.process.send_signal(signal.SIGHUP)
        until_status(server, "second", 200)
        assert status_with(server, "first") == 401
        file.write_text("broken:\n")  # malformed: the keys stay
        server.process.send_signal(signal.SIGHUP)
        time.sleep(0.3)
        assert (status_with(server, "second"), status_with(server, "broken")) == (200, 401)


def status_with(server: Served, key: str) -> int:
    return server.get("/v1/models", authorization=f"Bearer {key}").status_code


def until_status(server: Served, key: str, status: int) -> None:
    end = time.monotonic() + 10
    while status_with(server, key) != status:
        assert time.monotonic() < end, "SIGHUP did not read the keys again"
        time.sleep(0.02)


@pytest.mark.skipif(which("openssl") is None, reason="no openssl")
def test_a_certificate_is_used_and_read_again(tmp_path: Path) -> None:
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    make_certificate(cert, key)
    with served("--backend", "cpu", "--ssl-cert-file", str(cert), "--ssl-key-file", str(key)) as server:
        assert server.url.startswith("https://127.0.0.1:")
        trusted = ssl.create_default_context(cafile=str(cert))
        with httpx.Client(base_url=server.url, verify=trusted) as http:
            assert http.post(PATH, json=body(2), timeout=60).status_code == 200
        with pytest.raises(httpx.ConnectError), httpx.Client(base_url=server.url) as http:
            http.get("/health")  # the certificate is nobody's
        port = httpx.URL(server.url).port
        assert port is not None
        before = ssl.get_server_certificate(("127.0.0.1", port))
        make_certificate(cert, key)
        server.process.send_signal(signal.SIGHUP)
        end = time.monotonic() + 10
        while ssl.get_server_certificate(("127.0.0.1", port)) == before:
            assert time.monotonic() < end, "SIGHUP did not read the certificate again"
        cert.write_text("rubbish")
        server.process.send_signal(signal.SIGHUP)
        time.sleep(0.2)
        assert ssl.get_server_certificate(("127.0.0.1", port)) != before


def make_certificate(cert: Path, key: Path) -> None:
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
         "-days", "2", "-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1,DNS:localhost",
         "-keyout", str(key), "-out", str(cert)],
        check=True, capture_output=True,
    )  # fmt: skip


def test_an_unknown_host_is_refused_as_a_page_reaches_it_by_rebinding() -> None:
    with served("--backend", "cpu", "--allowed-host", "llm.example") as server:
        for host, status in {
            "127.0.0.1": 200, "localhost:8080": 200, "LLM.example:80": 200, "[::1]:1": 200,
            "evil.example": 403, "localhost.evil.example": 403, "": 403,
        }.items():  # fmt: skip
            assert server.get("/v1/models", host=host).status_code == status, host


def test_ipv6() -> None:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("no IPv6 here")
    with served("--backend", "cpu", "--host", "::1") as server:
        assert server.url.startswith("http://[::1]:")
        assert server.post(PATH, body(2)).status_code == 200
