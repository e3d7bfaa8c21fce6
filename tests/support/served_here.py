"""A server inside the test process, so that a test sees its engine and plants faults."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import httpx

from camelid.engine.engine import StepEngine
from camelid.loading.options import LoadOptions
from camelid.server.http.guard import Guard
from camelid.server.http.keys import KeyRing
from camelid.server.http.listen import listen
from camelid.server.process import Listening, serve
from camelid.server.server import Server
from camelid.server.service.limits import Limits
from camelid.server.service.memory import Memory
from camelid.server.service.models import ModelRow, Models
from camelid.server.service.service import Service
from camelid.server.settings import Settings

WAIT_S = 20.0
ANSWER_S = 120.0  # of a whole answer, whose grammar workers leave a busy machine to others
SEND_BUFFER = 16 << 10  # small, so that a test fills it soon


@dataclass
class ServedHere:
    """A server on a thread of this process, with clients of it."""

    server: Server
    port: int
    http: httpx.Client

    @property
    def service(self) -> Service:
        service = self.server.models.default.service
        assert service is not None, "the model is loaded"
        return service

    @property
    def engine(self) -> StepEngine:
        return self.service.host.running.engine

    @property
    def is_idle(self) -> bool:
        """True if no request is under way and every unit of state is free or cached."""
        return self.engine.is_idle and not self.engine.is_busy and not self.service.admission.n_places

    def connect(self) -> socket.socket:
        """A raw connection."""
        return socket.create_connection(("127.0.0.1", self.port), timeout=WAIT_S)

    def wait_idle(self) -> None:
        """Waits until all state is free."""
        until(lambda: self.is_idle)


def until(condition: Callable[[], bool], seconds: float = WAIT_S) -> None:
    """Polls until a condition holds. Raises AssertionError after the time."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "the condition did not come true in time"
        time.sleep(0.002)


@contextmanager
def served_here(
    model: str = "cria",
    *,
    keys: KeyRing | None = None,
    limits: Limits | None = None,
    max_queue: int = 32,
    max_body: int = 1 << 20,
    is_strict: bool = False,
    origins: frozenset[str] = frozenset(),
    others: Mapping[str, str] | None = None,
    memory: int | None = None,
    **options: Any,
) -> Iterator[ServedHere]:
    """Serves a model on a thread of its own, and the files of `others` by name, within `memory` bytes."""
    load = LoadOptions.of(**{"backend": "cpu", **options})
    files = {"cria": model, **(others or {})}
    rows = {name: ModelRow(name, file, load, max_queue=max_queue) for name, file in files.items()}
    started, end = threading.Event(), threading.Event()
    found: list[Server] = []
    guard = Guard(keys or KeyRing(), max_body, frozenset({"localhost"}), origins)

    async def work(listener: socket.socket) -> None:
        models = Models(rows, limits or Limits(), memory=Memory(memory))
        server = Server(models, guard, Settings(strict=is_strict))
        found.append(server)
        serving = asyncio.create_task(serve(server, Listening(drain_s=1), [listener], started.set))
        while not end.is_set() and not serving.done():
            await asyncio.sleep(0.01)
        serving.cancel()
        await asyncio.wait([serving])

    with listen("127.0.0.1", 0) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER)  # inherited by connections
        port = listener.getsockname()[1]
        thread = threading.Thread(target=lambda: asyncio.run(work(listener)))
        thread.start()
        try:
            assert started.wait(WAIT_S), "the model did not load"
            with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=ANSWER_S) as client:
                yield ServedHere(found[0], port, client)
        finally:
            end.set()
            thread.join()
