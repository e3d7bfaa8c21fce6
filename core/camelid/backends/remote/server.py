"""The stage's end: a backend of this process, driven by the engine that greeted it last.

One thread reads a call, runs it and replies. libzmq's own thread answers heartbeats meanwhile, so a load of
minutes is a sign of life, and a stopped process is none.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from threading import Event
from typing import Any

import zmq
from zmq.utils.monitor import recv_monitor_message

from camelid.backends.base import Backend
from camelid.backends.remote.frames import (
    LOST_S,
    PROTOCOL,
    Kind,
    Message,
    bounded,
    damaged,
    error_bytes,
    header,
    keys_of,
    message,
    table_at,
    table_bytes,
)
from camelid.backends.remote.session import Session
from camelid.errors import BackendError

LOG = logging.getLogger("camelid.stage")
POLL_MS = 200  # between looks at the end
PROBES = 10  # of the engine after a disconnection, which libzmq reports before it cuts the engine's queue


class StageServer:
    """Serves backends that `make` makes, one engine at a time, at `address`, whose port may be `*` for any.

    A new engine takes the place of the old one, whose calls then fail: the old one may hang, and only a
    holder of the token can be the new one.
    """

    def __init__(
        self, make: Callable[[], Backend], token: str, address: str = "tcp://127.0.0.1:*", *,
        lost_s: float = LOST_S,
    ) -> None:  # fmt: skip
        self._make = make
        self._context = zmq.Context()
        self._socket = self._context.socket(zmq.ROUTER)
        bounded(self._socket, lost_s)
        self._socket.setsockopt(zmq.ROUTER_MANDATORY, 1)  # an engine that is gone is an error
        _, self._socket.curve_secretkey = keys_of(token)
        self._socket.curve_server = True
        self._monitor = self._socket.get_monitor_socket(zmq.EVENT_DISCONNECTED)
        self._socket.bind(address)
        self._engine: bytes | None = None  # the identity of its connection
        self._session: Session | None = None
        self._probes = 0  # still to send
        self._is_ended = Event()

    @property
    def address(self) -> str:
        """The address with its port."""
        return self._socket.getsockopt_string(zmq.LAST_ENDPOINT)

    def serve(self) -> None:
        """Serves until `stop`, and closes the backend."""
        asyncio.run(self._serve())

    def stop(self) -> None:
        """Ends `serve`, from any thread, after the call under way."""
        self._is_ended.set()

    async def _serve(self) -> None:
        poller = zmq.Poller()
        for socket in (self._socket, self._monitor):
            poller.register(socket, zmq.POLLIN)
        try:
            while not self._is_ended.is_set():
                ready = dict(poller.poll(POLL_MS))
                if self._socket in ready:
                    identity, *frames = self._socket.recv_multipart()
                    await self._take(identity, frames)
                if self._monitor in ready:
                    recv_monitor_message(self._monitor)
                    self._probes = PROBES
                if self._probes and self._socket not in ready:
                    self._probes -= 1
                    await self._look()
        finally:
            await self._leave()
            self._socket.disable_monitor()
            self._monitor.close()
            self._socket.close()
            self._context.term()

    async def _take(self, identity: bytes, frames: Sequence[bytes]) -> None:
        """Answers one message; whatever is wrong with it goes back as an error."""
        number = 0
        try:
            received = message(frames)
            number = received.number
            reply = await self._reply(identity, received)
        except Exception as error:
            self._send(identity, header(Kind.FAILURE, number), error_bytes(error))
        else:
            if reply is not None:
                self._send(identity, header(Kind.REPLY, number), *reply)

    async def _reply(self, identity: bytes, received: Message) -> Sequence[bytes] | None:
        if received.kind == Kind.HELLO:
            return await self._greet(identity, table_at(received.frames))
        if identity != self._engine or self._session is None:
            raise BackendError("this connection has not greeted the stage", backend="remote")
        if received.kind == Kind.BYE:
            return await self._leave()
        if received.kind == Kind.RUN:
            return await self._session.run(received.frames)
        if received.kind == Kind.CALL:
            return await self._session.call(table_at(received.frames), received.frames[1:])
        raise damaged(f"a stage takes no {received.kind.name}")

    async def _greet(self, identity: bytes, hello: dict[str, Any]) -> Sequence[bytes]:
        """Begins a session. Raises BackendError for another version."""
        theirs = hello.get("protocol")
        if theirs != PROTOCOL:
            raise BackendError(
                f"the stage speaks protocol {PROTOCOL}, the engine {theirs!r:.80}; install one version of "
                "camelid on all machines",
                backend="remote",
            )
        if self._engine is not None and self._engine != identity:
            taken = BackendError("another engine has taken this stage", backend="remote")
            self._send(self._engine, header(Kind.FAILURE), error_bytes(taken))
        await self._leave()
        self._probes = 0
        self._engine, self._session = identity, Session(self._make())
        return [table_bytes({"protocol": PROTOCOL})]

    async def _leave(self) -> None:
        """Ends the session, if any, and frees its memory."""
        session, self._engine, self._session = self._session, None, None
        if session:
            with suppress(Exception):  # nobody is left to hear of it
                await session.close()

    async def _look(self) -> None:
        """Ends the session if its engine is the one that went."""
        if self._engine is not None and not self._send(self._engine, header(Kind.PING)):
            LOG.warning("the engine of this stage is gone; its memory is freed")
            await self._leave()

    def _send(self, identity: bytes, *frames: bytes) -> bool:
        """Sends a message; False if its receiver is gone, or reads nothing."""
        try:
            self._socket.send_multipart([identity, *frames], zmq.NOBLOCK)
        except zmq.ZMQError:
            return False
        return True
