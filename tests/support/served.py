"""`camelid serve` as a process, for tests that drive it through real sockets."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

ROOT = Path(__file__).parents[2]
ADDRESS = re.compile(r"serving .* at (https?://\S+)")


@dataclass
class Served:
    """A running server: its process, its address, and a client of it."""

    process: subprocess.Popen[str]
    url: str
    http: httpx.Client

    def post(self, path: str, body: Any = None, **headers: str) -> httpx.Response:
        return self.http.post(path, json=body, headers=headers)

    def get(self, path: str, **headers: str) -> httpx.Response:
        return self.http.get(path, headers=headers)

    def stream(self, path: str, body: Any, **headers: str) -> Iterator[dict[str, Any]]:
        """The data of a reply's server-sent events; comments and [DONE] are left out."""
        with self.http.stream("POST", path, json=body, headers=headers) as reply:
            if reply.status_code != 200:
                raise AssertionError(f"{reply.status_code}: {reply.read().decode()}")
            for line in reply.iter_lines():
                if line.startswith("data: ") and line != "data: [DONE]":
                    yield json.loads(line.removeprefix("data: "))

    def stop(self, sig: int = signal.SIGTERM, timeout: float = 20.0) -> int:
        """Sends a signal and returns the exit code."""
        self.process.send_signal(sig)
        return self.process.wait(timeout)


@contextmanager
def served(*arguments: str, **environment: str) -> Iterator[Served]:
    """Starts `camelid serve --port 0 ARGUMENTS` and waits until the model is loaded."""
    paths = os.pathsep.join(str(ROOT / name) for name in ("core", "native"))
    command = [sys.executable, "-m", "camelid", "serve", "--port", "0", *arguments]
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONPATH": paths, **environment},
    )  # fmt: skip
    try:
        url = address_of(process)
        with httpx.Client(base_url=url, timeout=60) as client:
            yield Served(process, url, client)
    finally:
        process.kill()
        process.communicate()


def address_of(process: subprocess.Popen[str]) -> str:
    """The address that the server prints once it serves."""
    assert process.stderr is not None, "the process was started with a pipe"
    lines: list[str] = []
    for line in process.stderr:
        lines.append(line)
        if found := ADDRESS.search(line):
            return found[1]
    raise AssertionError(f"the server ended with {process.wait()}: {''.join(lines)}")
