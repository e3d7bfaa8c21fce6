"""The engine's end of a connection: calls go out, and a thread of its own joins replies to them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from concurrent.futures import Future
from contextlib import suppress
from itertools import count
from threading import Lock, Thread
from typing import Any

import zmq
from zmq.utils.monitor import recv_monitor_message

from camelid.backends.remote.frames import (
    LOST_S,
    PROTOCOL,
    Kind,
    Message,
    bounded,
    error_of,
    header,
    keys_of,
    message,
    table_at,
    table_bytes,
)
from camelid.errors import BackendError, CamelidError, DeviceLostError

HUNG_S = 300.0  # a first step may compile kernels for a minute
Frames = Sequence[bytes]
STOP = b"stop"
# What libzmq reports of a peer that is gone, or that never let this one in.
GONE = zmq.EVENT_DISCONNECTED | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL


class Link:
    """One connection. `ask` may be called on any thread; a lost peer fails every open call at once.

    A peer is lost after `lost_s` without a sign of life, and after `hung_s` without a reply while a step is
    under way: its socket's thread lives on where its device hangs.
    """

    def __init__(self, address: str, token: str, lost_s: float = LOST_S, hung_s: float = HUNG_S) -> None:
        server_key, _ = keys_of(token)
        self.address, self.lost_s, self.hung_s = address, lost_s, hung_s
        self._context = zmq.Context()
        self._socket = self._context.socket(zmq.DEALER)
        bounded(self._socket, lost_s)
        self._socket.setsockopt(zmq.RECONNECT_IVL, -1)  # a new connection is a new session
        self._socket.curve_serverkey = server_key
        self._socket.curve_publickey, self._socket.curve_secretkey = zmq.curve_keypair()
        self._monitor = self._socket.get_monitor_socket(GONE)
        self._inbox, self._outbox = self._pair()
        self._socket.connect(address)
        self._lock, self._numbers = Lock(), count(1)
        self._waiting: dict[int, Future[Frames]] = {}
        self._steps, self._heard = set[int](), 0.0  # the calls of steps, and when the wait for them began
        self.failure: CamelidError | None = None
        self._thread = Thread(target=self._run, name=f"camelid stage {address}", daemon=True)
        self._thread.start()

    def _pair(self) -> tuple[Any, Any]:
        """The two ends of the queue from other threads to this link's."""
        ends = self._context.socket(zmq.PULL), self._context.socket(zmq.PUSH)
        for end in ends:
            end.setsockopt(zmq.LINGER, 0)
            end.set_hwm(0)
        ends[0].bind("inproc://calls")
        ends[1].connect("inproc://calls")
        return ends

    async def greet(self) -> None:
        """The handshake. Raises BackendError for a stage of another version or with another token."""
        try:
            hello = self.ask(Kind.HELLO, table_bytes({"protocol": PROTOCOL}))
            async with asyncio.timeout(self.lost_s):
                await settled(hello)
        except (TimeoutError, DeviceLostError) as error:
            raise DeviceLostError(
                f"no stage answers at {self.address} ({error or f'none in {self.lost_s:g} s'}); is it "
                "running, and is its token the engine's?",
                backend="remote", reason="no handshake",
            ) from error  # fmt: skip

    def ask(self, kind: Kind, *frames: bytes) -> Future[Frames]:
        """Sends a message; the reply's frames, or its error. Raises DeviceLostError on a lost connection."""
        with self._lock:
            if self.failure:
                raise self.failure
            number = next(self._numbers)
            future = self._waiting[number] = Future[Frames]()
            if kind == Kind.RUN:
                self._heard = self._heard if self._steps else time.monotonic()
                self._steps.add(number)
            self._outbox.send_multipart([header(kind, number), *frames])
        return future

    def close(self) -> None:
        """Sends BYE and ends the thread; waits at most `lost_s`."""
        self._fail(BackendError("the connection to the stage is closed; open it again", backend="remote"))
        with self._lock, suppress(zmq.ZMQError):
            self._outbox.send(STOP)
        self._thread.join(self.lost_s)

    # On the link's thread

    def _run(self) -> None:
        poller = zmq.Poller()
        for socket in (self._socket, self._inbox, self._monitor):
            poller.register(socket, zmq.POLLIN)
        try:
            while self._turn(dict(poller.poll(int(250 * min(self.hung_s, 4))))):  # ms
                self._check_hung()
        except Exception as error:  # whatever it was, no open call may wait for ever
            self._lose(f"{type(error).__name__}: {error}")
        finally:
            self._end()

    def _turn(self, ready: dict[Any, int]) -> bool:
        """One look at the sockets; False at the end. Replies come before the news that the peer is gone."""
        while self._socket in ready and self._receive():
            pass
        if self._inbox in ready and not self._send():
            return False
        if self._monitor in ready:
            event = recv_monitor_message(self._monitor)["event"]
            self._lose("it closed the connection" if event == zmq.EVENT_DISCONNECTED else "it refused")
        return True

    def _check_hung(self) -> None:
        with self._lock:
            is_hung = self._steps and time.monotonic() > self._heard + self.hung_s
        if is_hung:
            self._lose(f"no step ended in {self.hung_s:g} s")

    def _receive(self) -> bool:
        try:
            frames = self._socket.recv_multipart(zmq.NOBLOCK)
        except zmq.Again:
            return False
        try:
            self._answer(message(frames))
        except BackendError as error:
            self._lose(error.message)
        return True

    def _answer(self, reply: Message) -> None:
        """Ends the call that a message replies to. A failure without a call ends the connection.

        A damaged failure is read before its call is taken out, so that the call ends with the connection.
        """
        error = error_of(table_at(reply.frames)) if reply.kind == Kind.FAILURE else None
        with self._lock:
            future = self._waiting.pop(reply.number, None)
            self._steps.discard(reply.number)
            self._heard = time.monotonic()
        if error:
            if future:
                future.set_exception(error)
            else:
                self._lose(error.message)
        elif reply.kind == Kind.REPLY and future:
            future.set_result(reply.frames)

    def _send(self) -> bool:
        frames = self._inbox.recv_multipart()
        if frames == [STOP]:
            return False
        try:
            self._socket.send_multipart(frames, zmq.NOBLOCK)
        except zmq.Again:
            self._lose("it reads nothing")
        return True

    def _lose(self, reason: str) -> None:
        self._fail(
            DeviceLostError(
                f"the stage at {self.address} was lost: {reason}; load the model again",
                backend="remote", reason=reason,
            )
        )  # fmt: skip

    def _fail(self, error: CamelidError) -> None:
        """Ends every open call with an error, and refuses later ones with the first."""
        with self._lock:
            self.failure = self.failure or error
            open_calls, self._waiting = list(self._waiting.values()), {}
            self._steps.clear()
        for future in open_calls:
            future.set_exception(self.failure)

    def _end(self) -> None:
        """Sends BYE if the stage still reads, and frees the sockets."""
        with suppress(zmq.ZMQError):
            self._socket.setsockopt(zmq.LINGER, 200)  # ms, for the goodbye
            self._socket.send_multipart([header(Kind.BYE)], zmq.NOBLOCK)
        self._socket.disable_monitor()
        with self._lock:
            for socket in (self._inbox, self._outbox, self._monitor, self._socket):
                socket.close()
            self._context.term()


async def settled(future: Future[Frames]) -> Frames:
    """The result of a call. Cancelling the wait cancels no call, so that another may wait for it."""
    if not future.done():
        loop = asyncio.get_running_loop()
        turn = loop.create_future()
        future.add_done_callback(lambda _: _wake(loop, turn))
        await turn
    return future.result()


def _wake(loop: asyncio.AbstractEventLoop, turn: asyncio.Future[None]) -> None:
    with suppress(RuntimeError):  # the loop that waited is closed
        loop.call_soon_threadsafe(lambda: turn.done() or turn.set_result(None))
