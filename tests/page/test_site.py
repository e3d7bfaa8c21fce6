"""The built site and its server: the policy, compression, ranges, validators."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path
from urllib.parse import urlsplit

import pytest

pytest.importorskip("starlette", reason="needs the web extra")

from camelid.errors import BackendError, RequestError
from camelid.server.static import HUB_HOSTS, policy, serve

ROOT = Path(__file__).parents[2]
SERVE = """
import sys
from pathlib import Path
from camelid.server.static import serve
options = {"hub": sys.argv[2]} if sys.argv[2:] else {}
serve(Path(sys.argv[1]), port=0, **options, ready=lambda url: print(url, flush=True))
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    site = tmp_path_factory.mktemp("site")
    (site / "index.html").write_text("<title>page</title>")
    (site / "model.gguf").write_bytes(bytes(range(256)))
    (site / "app.wasm").write_bytes(b"plain")
    (site / "app.wasm.br").write_bytes(b"as brotli")
    (site / "app.wasm.gz").write_bytes(b"as gzip")
    (site / "service_worker.js").write_text('const POLICY = "";')
    (site.parent / "secret").write_text("outside")
    return site


@pytest.fixture(scope="module")
def address(site: Path) -> Iterator[str]:
    with served(site) as found:
        yield found


@contextmanager
def served(site: Path, *options: str) -> Iterator[str]:
    environment = os.environ | {"PYTHONPATH": str(ROOT / "core")}
    command = [sys.executable, "-c", SERVE, str(site), *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as server:
        assert server.stdout
        yield urlsplit(server.stdout.readline().strip()).netloc
        server.terminate()


def get(address: str, path: str, **headers: str) -> tuple[HTTPResponse, bytes]:
    connection = HTTPConnection(address, timeout=60)
    connection.request(
        "GET", path, headers={name.replace("_", "-"): value for name, value in headers.items()}
    )
    response = connection.getresponse()
    body = response.read()
    connection.close()
    return response, body


def test_server_is_on_loopback(address: str) -> None:
    assert address.startswith("127.0.0.1:")


@pytest.mark.parametrize("path", ["/", "/app.wasm", "/absent"])
def test_policy_is_in_every_response(address: str, path: str) -> None:
    response, _ = get(address, path)
    assert response.headers["cross-origin-opener-policy"] == "same-origin"
    assert response.headers["cross-origin-embedder-policy"] == "require-corp"
    policy = response.headers["content-security-policy"]
    assert "script-src 'self' 'wasm-unsafe-eval';" in policy
    assert "unsafe-inline" not in policy and "*" not in policy
    connect = next(part for part in policy.split("; ") if part.startswith("connect-src "))
    assert connect.split()[1:3] == ["'self'", "https://huggingface.co"]
    assert "http" not in policy.replace(connect, "")
    assert response.headers["x-content-type-options"] == "nosniff"


def test_policy_names_the_hub_and_no_wider_host() -> None:
    standard, own = (
        policy("https://huggingface.co/"),
        policy("https://hub.example/hf", ("http://127.0.0.1:9000/models",)),
    )
    assert all(f" https://{host}" in standard for host in HUB_HOSTS)
    assert "connect-src 'self' https://hub.example http://127.0.0.1:9000;" in own


@pytest.mark.parametrize(
    "wrong", ["models.example", "https://", "ftp://h", "https://*.h", "https://h; script-src *"]
)
def test_what_is_no_server_is_refused(wrong: str) -> None:
    with pytest.raises(RequestError, match="is no address of a server"):
        policy(connect=(wrong,))


def test_pages_learn_the_hub_and_a_new_policy(site: Path, address: str) -> None:
    with served(site, "http://127.0.0.1:1") as other:
        answers = [
            [get(at, path)[1] for at in (address, other)]
            for path in ("/models/hub.json", "/service_worker.js")
        ]
    assert answers[0] == [b'{"endpoint": "https://huggingface.co"}', b'{"endpoint": "http://127.0.0.1:1"}']
    assert answers[1][0] != answers[1][1], "browsers would keep the pages of the old policy"


def test_folder_means_index(address: str) -> None:
    response, body = get(address, "/")
    assert (response.status, body) == (200, b"<title>page</title>")
    assert response.headers["content-type"].startswith("text/html")


@pytest.mark.parametrize(
    ("accepted", "encoding", "body"),
    [
        ("gzip, br", "br", b"as brotli"),
        ("gzip", "gzip", b"as gzip"),
        ("gzip, br;q=0", "gzip", b"as gzip"),
        ("", None, b"plain"),
    ],
)
def test_best_accepted_encoding_is_sent(
    address: str, accepted: str, encoding: str | None, body: bytes
) -> None:
    response, got = get(address, "/app.wasm", accept_encoding=accepted)
    assert (response.headers["content-encoding"], got) == (encoding, body)
    assert response.headers["content-type"] == "application/wasm"
    assert response.headers["vary"] == "accept-encoding"


def test_range_is_of_the_uncompressed_file(address: str) -> None:
    response, body = get(address, "/app.wasm", range="bytes=1-2", accept_encoding="br")
    assert (response.status, body) == (206, b"la")
    response, body = get(address, "/model.gguf", range="bytes=250-")
    assert (response.headers["content-range"], body) == ("bytes 250-255/256", bytes(range(250, 256)))


def test_unchanged_file_is_not_sent_again(address: str) -> None:
    first, _ = get(address, "/app.wasm", accept_encoding="br")
    again, body = get(address, "/app.wasm", accept_encoding="br", if_none_match=first.headers["etag"])
    assert (again.status, body) == (304, b"")


@pytest.mark.parametrize("path", ["/../secret", "/%2e%2e/secret", "/..%2fsecret", "//etc/passwd"])
def test_nothing_outside_the_site_is_served(address: str, path: str) -> None:
    response, body = get(address, path)
    assert response.status == 404
    assert b"outside" not in body and b"root:" not in body


def test_port_in_use_is_reported_in_one_line(address: str, tmp_path: Path) -> None:
    port = int(address.rpartition(":")[2])
    with pytest.raises(BackendError, match=rf"cannot listen on 127\.0\.0\.1 port {port}: .*--port"):
        serve(tmp_path, port=port)


def test_interrupt_ends_the_server_quietly(tmp_path: Path) -> None:
    command = [sys.executable, "-c", SERVE, str(tmp_path)]
    environment = os.environ | {"PYTHONPATH": str(ROOT / "core")}
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, env=environment) as server:
        assert server.stdout
        get(urlsplit(server.stdout.readline().strip()).netloc, "/")
        server.send_signal(signal.SIGINT)
        _, complaint = server.communicate(timeout=60)
    assert (server.returncode, complaint) == (0, "")
