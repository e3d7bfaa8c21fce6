"""A model hub on loopback, for the real huggingface_hub client over real sockets.

It serves the client's requests to https://huggingface.co: `/api/models/{repo}/revision/{rev}`, HEAD and GET
of `/{repo}/resolve/{rev}/{file}` with ETag, X-Repo-Commit, X-Linked-Etag and X-Linked-Size, a redirect of
large files to a second host (a "CDN" on another port), Range requests, error codes in X-Error-Code, and the
headers by which pages of other sites may read all this (CORS).
Faults are set on the `Hub`: cut connections, changed bytes, delayed answers.
"""

from __future__ import annotations

import hashlib
import json
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

# What the hub lets pages of other sites do and read.
CORS = {
    "Access-Control-Allow-Origin": "*",
    "Access-Control-Allow-Headers": "*",
    "Access-Control-Expose-Headers": "Content-Range, ETag, X-Error-Code, X-Repo-Commit",
}
LARGE = 1024  # smallest LFS file: named by its SHA-256 and served by the CDN


@lru_cache(maxsize=16)  # a file is looked up by its hash at each request
def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def git_sha1(data: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


@dataclass
class Repo:
    """Files by revision; a revision is a commit or a name of a commit."""

    commits: dict[str, dict[str, bytes]]
    names: dict[str, str]
    token: str = ""  # required to read it; empty: public
    is_gated: bool = False
    listed_only: dict[str, bytes] = field(default_factory=dict)  # listed, but not served


@dataclass
class Hub:
    """Served files, injected faults, and a log of requests."""

    repos: dict[str, Repo] = field(default_factory=dict)
    cut_after: list[int] = field(default_factory=list)  # bytes before the cut, per coming download
    flip: int = -1  # index of the byte to change in downloads
    is_down: bool = False  # 503 to every request
    delay_s: float = 0.0  # before each 64 KiB of a download
    ignores_range: bool = False
    hides_size: bool = False  # no Content-Length of a download, which ends with its connection
    claimed_size: int = 0  # reported size of large files; 0: the true size
    asked: list[tuple[str, str, dict[str, str]]] = field(default_factory=list)  # method, path, headers
    n_sent: int = 0  # bytes of downloads
    url: str = ""
    cdn: str = ""

    def add(self, name: str, files: dict[str, bytes], *, revision: str = "main", **facts: Any) -> str:
        """Serves files as the newest commit of a revision. Returns the commit."""
        commit = git_sha1(repr(sorted(files.items())).encode())
        repo = self.repos.setdefault(name, Repo({}, {}))
        repo.commits[commit] = files
        repo.names[revision] = commit
        for key, value in facts.items():
            setattr(repo, key, value)
        return commit

    def downloads(self) -> list[dict[str, str]]:
        """Headers of every request for a large file's bytes."""
        return [
            headers for method, path, headers in self.asked if method == "GET" and path.startswith("/cdn/")
        ]


@contextmanager
def serve_hub() -> Iterator[Hub]:
    """A running, empty hub."""
    hub = Hub()
    handler = type("Bound", (Handler,), {"hub": hub})
    servers = [Server(("127.0.0.1", 0), handler) for _ in range(2)]
    for server in servers:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    # Two names of this machine are two hosts: the client must not send its token to the second.
    hub.url = f"http://127.0.0.1:{servers[0].server_address[1]}"
    hub.cdn = f"http://localhost:{servers[1].server_address[1]}"
    try:
        yield hub
    finally:
        for server in servers:
            server.shutdown()
            server.server_close()


class Server(ThreadingHTTPServer):
    """Prints no traceback for a client that goes away."""

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


class Handler(BaseHTTPRequestHandler):
    """Handles one connection."""

    hub: Hub
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name in http.server
        """Writes no log."""

    def do_HEAD(self) -> None:
        self.answer()

    def do_GET(self) -> None:
        self.answer()

    def do_OPTIONS(self) -> None:
        self.send(204, b"", {})

    def answer(self) -> None:
        path = unquote(urlsplit(self.path).path)
        self.hub.asked.append((self.command, path, {k.lower(): v for k, v in self.headers.items()}))
        if self.hub.is_down:
            return self.refuse(503, "")
        parts = path.strip("/").split("/")
        if parts[0] == "cdn":
            return self.send_bytes(self.content(parts[1]), {"ETag": f'"{parts[1]}"'})
        if parts[:2] == ["api", "models"] and len(parts) >= 6 and parts[4] == "revision":
            return self.list_files(f"{parts[2]}/{parts[3]}", "/".join(parts[5:]))
        if len(parts) >= 5 and parts[2] == "resolve":
            return self.resolve(f"{parts[0]}/{parts[1]}", parts[3], "/".join(parts[4:]))
        return self.refuse(404, "")

    def find(self, name: str, revision: str) -> tuple[Repo, str] | None:
        repo = self.hub.repos.get(name)
        if repo is None:
            # The real hub answers 401 without credentials, so that private repositories stay undisclosed.
            return self.refuse(404 if self.headers.get("Authorization") else 401, "RepoNotFound")
        commit = repo.names.get(revision, revision)
        if commit not in repo.commits:
            return self.refuse(404, "RevisionNotFound")
        return repo, commit

    def list_files(self, name: str, revision: str) -> None:
        if not (found := self.find(name, revision)):
            return
        repo, commit = found
        files = {**repo.commits[commit], **repo.listed_only}
        siblings = [self.sibling(n, d) for n, d in files.items()]
        gated = "manual" if repo.is_gated else False
        body = {"id": name, "sha": commit, "private": False, "gated": gated, "tags": [], "siblings": siblings}
        self.send(200, json.dumps(body).encode(), {"Content-Type": "application/json"})

    def sibling(self, name: str, data: bytes) -> dict[str, Any]:
        entry = {"rfilename": name, "size": len(data), "blobId": git_sha1(data)}
        if len(data) >= LARGE:
            entry["size"] = self.hub.claimed_size or len(data)
            entry["lfs"] = {"sha256": sha256(data), "size": entry["size"], "pointerSize": 130}
        return entry

    def resolve(self, name: str, revision: str, file: str) -> None:
        if not (found := self.find(name, revision)):
            return
        repo, commit = found
        given = self.headers.get("Authorization", "")
        if repo.token and given != f"Bearer {repo.token}":
            return self.refuse(403 if given else 401, "GatedRepo" if repo.is_gated else "")
        data = repo.commits[commit].get(file)
        if data is None:
            return self.refuse(404, "EntryNotFound")
        facts = {"X-Repo-Commit": commit}
        if len(data) < LARGE:
            return self.send_bytes(data, {**facts, "ETag": f'"{git_sha1(data)}"'})
        facts |= {
            "X-Linked-Etag": f'"{sha256(data)}"',
            "X-Linked-Size": str(self.hub.claimed_size or len(data)),
        }
        self.send(302, b"", {**facts, "Location": f"{self.hub.cdn}/cdn/{sha256(data)}"})

    def content(self, digest: str) -> bytes:
        commits = [files for repo in self.hub.repos.values() for files in repo.commits.values()]
        return next(data for files in commits for data in files.values() if sha256(data) == digest)

    def send_bytes(self, data: bytes, headers: dict[str, str]) -> None:
        """Sends the bytes, or a Range of the bytes, with the injected faults."""
        status, start, end = 200, 0, len(data)
        asked = self.headers.get("Range", "")
        if asked and not self.hub.ignores_range:
            first, last = asked.removeprefix("bytes=").split("-")
            start, end = int(first), min(int(last or len(data)) + 1, len(data))
            if start >= len(data):
                return self.send(416, b"", {"Content-Range": f"bytes */{len(data)}"})
            status, headers = 206, {**headers, "Content-Range": f"bytes {start}-{end - 1}/{len(data)}"}
        if 0 <= self.hub.flip < len(data):
            at = self.hub.flip
            data = data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]
        self.send(status, data[start:end], headers, is_download=True)

    def refuse(self, status: int, code: str) -> None:
        headers = {"X-Error-Code": code, "X-Error-Message": code} if code else {}
        self.send(status, b"{}", headers)

    def send(self, status: int, body: bytes, headers: dict[str, str], *, is_download: bool = False) -> None:
        self.send_response(status)
        is_sized = not (is_download and self.hub.hides_size)
        size = {"Content-Length": str(len(body))} if is_sized else {"Connection": "close"}
        for key, value in {**CORS, **headers, **size}.items():
            self.send_header(key, value)
        self.end_headers()
        if self.command == "HEAD":
            return
        try:
            self.write(body, is_download)
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True

    def write(self, body: bytes, is_download: bool) -> None:
        cut = self.hub.cut_after.pop(0) if is_download and self.hub.cut_after else len(body)
        for at in range(0, min(cut, len(body)), 1 << 16):
            if is_download and self.hub.delay_s:
                time.sleep(self.hub.delay_s)
            part = body[at : min(at + (1 << 16), cut)]
            self.hub.n_sent += is_download * len(part)  # counted before the client has the bytes
            self.wfile.write(part)
        if cut < len(body):
            self.close_connection = True  # fewer bytes than announced
