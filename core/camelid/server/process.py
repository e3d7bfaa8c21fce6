"""The server process: sockets, signals, loading, draining, reloading."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import sys
import time
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from camelid.errors import BackendError
from camelid.server.app import App
from camelid.server.http.protocol import BoundedProtocol
from camelid.server.server import Server
from camelid.server.service.watch import watch

try:
    import uvicorn
except ModuleNotFoundError as error:
    raise BackendError(
        f"the server needs {error.name}: pip install 'camelid[serve]'", backend="server"
    ) from error

LOG = logging.getLogger("camelid.server")
POLL_S = 0.05
TAIL_S = 5.0  # for the last bytes to slow readers, once no request runs
END_S = 2.0  # for engines to close; then the process ends without them


@dataclass(frozen=True, slots=True)
class Listening:
    """How the server listens.

    `reload` reads its files again; `ends_process` lets it end the process where an engine does not close.
    """

    tls_cert: str | None = None
    tls_key: str | None = None
    drain_s: float = 30.0
    reload: Callable[[], Awaitable[object]] | None = None
    ends_process: bool = False


class Process(uvicorn.Server):
    """uvicorn's server, whose first signal drains and whose second ends at once."""

    def __init__(self, config: uvicorn.Config, server: Server, listening: Listening) -> None:
        super().__init__(config)
        self._server, self._listening = server, listening
        self._draining: asyncio.Task[None] | None = None
        self._reloading: asyncio.Task[None] | None = None

    def handle_exit(self, sig: int, frame: object) -> None:  # noqa: ARG002
        """Drains at the first signal, ends at the second."""
        if self._draining is None:
            loop = asyncio.get_running_loop()
            self._draining = loop.create_task(self._drain())
        else:
            self.should_exit = self.force_exit = True

    async def _drain(self) -> None:
        """Refuses new requests, and waits for the running ones, up to the bound."""
        self._server.phase = "draining"
        self._server.models.drain()
        LOG.info("draining: %d requests under way", self._server.models.n_places)
        end = time.monotonic() + self._listening.drain_s
        while self._server.models.n_places and time.monotonic() < end:
            await asyncio.sleep(POLL_S)
        self.config.timeout_graceful_shutdown = round(min(max(end - time.monotonic(), 1.0), TAIL_S))
        self.should_exit = True

    def abort(self) -> None:
        """Ends the connections that outlast the server: their clients read no more."""
        for connection in self.server_state.connections:
            connection.transport.abort()

    def hang_up(self) -> None:
        """Reads keys, certificate and models again, unless it does so already."""
        if self._reloading is None or self._reloading.done():
            self._reloading = asyncio.ensure_future(self._reload())

    async def _reload(self) -> None:
        """Reads files again; a faulty file changes nothing and is logged."""
        how = self._listening
        try:
            if how.tls_cert and self.config.ssl:
                self.config.ssl.load_cert_chain(how.tls_cert, how.tls_key)
            if how.reload:
                await how.reload()
            LOG.info("keys, certificate and models were read again")
        except Exception as error:
            LOG.error("a file keeps its old content: %s", error)


def process_of(server: Server, listening: Listening) -> Process:
    """The process, before it serves. Raises BackendError for a certificate that cannot be read."""
    config = uvicorn.Config(
        App(server), http=BoundedProtocol, log_config=None, access_log=False, lifespan="off",
        ws="none", server_header=False, timeout_graceful_shutdown=1, backlog=2048,
        ssl_certfile=listening.tls_cert, ssl_keyfile=listening.tls_key, timeout_keep_alive=60,
        proxy_headers=False,
    )  # fmt: skip
    try:
        config.load()
    except OSError as error:  # ssl.SSLError is one
        raise BackendError(
            f"the TLS certificate {listening.tls_cert} with the key {listening.tls_key} cannot be used: "
            f"{error.strerror or error}", backend="server",
        ) from error  # fmt: skip
    return Process(config, server, listening)


async def serve(
    server: Server, listening: Listening, sockets: list[socket.socket], ready: Callable[[], object]
) -> None:
    """Loads the default model while answering health checks, then serves until a signal."""
    process = process_of(server, listening)
    with on_hang_up(process.hang_up):
        serving = asyncio.create_task(process.serve(sockets))
        loading = asyncio.create_task(_load(server, ready))
        watching = asyncio.create_task(watch(server.models))
        try:
            await asyncio.wait((serving, loading), return_when=asyncio.FIRST_COMPLETED)
            if loading.done():
                loading.result()
            await serving
        finally:
            process.should_exit = True
            for task in (loading, watching):
                task.cancel()
            await asyncio.wait((serving, loading, watching))
            process.abort()
            await _end(server, ends_process=listening.ends_process)


async def _load(server: Server, ready: Callable[[], object]) -> None:
    first = None if server.settings.lazy else server.models.first
    if first:
        await server.models.load(first)
    if server.phase == "loading":
        server.phase = "ready"
        ready()


async def _end(server: Server, *, ends_process: bool) -> None:
    """Closes the engines. A load that cannot be interrupted ends with the process."""
    closing = asyncio.ensure_future(server.models.close())
    await asyncio.wait((closing,), timeout=END_S)
    is_stuck = ends_process and not closing.done()
    if is_stuck:
        LOG.warning("an engine did not end within %g s; the process ends without it", END_S)
    else:
        await closing
    server.close()
    if is_stuck:
        sys.stderr.flush()
        os._exit(int(sys.exc_info()[0] is not None))


@contextmanager
def on_hang_up(call: Callable[[], object]) -> Generator[None]:
    """Calls a function of the running loop at each SIGHUP, where the system has it."""
    number = getattr(signal, "SIGHUP", None)
    loop = asyncio.get_running_loop()
    is_set = False
    if number is not None:
        with suppress(NotImplementedError, RuntimeError, ValueError):  # not the main thread
            loop.add_signal_handler(number, call)
            is_set = True
    try:
        yield
    finally:
        if is_set and number is not None:
            loop.remove_signal_handler(number)
