"""The engine's end of a connection: replies of a stage that breaks the protocol end every call."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Thread

import pytest

zmq = pytest.importorskip("zmq", reason="needs pyzmq: pip install 'camelid[ray]'")

from camelid.backends.remote.frames import Kind, header, keys_of, message, table_bytes  # noqa: E402
from camelid.backends.remote.link import Link, settled  # noqa: E402
from camelid.errors import DeviceLostError  # noqa: E402

TOKEN = "a token of the tests"
LOST_S, HANGING_S = 5.0, 60.0


@contextmanager
def stage_that_answers(*replies: tuple[Kind, bytes]) -> Iterator[str]:
    """A peer that answers as many messages as it has replies, and then lives on in silence."""
    context = zmq.Context()
    socket = context.socket(zmq.ROUTER)
    socket.setsockopt(zmq.LINGER, 0)
    _, socket.curve_secretkey = keys_of(TOKEN)
    socket.curve_server = True
    socket.bind("tcp://127.0.0.1:*")

    def serve() -> None:
        for kind, frame in replies:
            identity, *frames = socket.recv_multipart()
            socket.send_multipart([identity, header(kind, message(frames).number), frame])

    thread = Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield socket.getsockopt_string(zmq.LAST_ENDPOINT)
        thread.join()
    finally:
        socket.close()
        context.term()


GREETING = Kind.REPLY, table_bytes({})


@pytest.mark.parametrize("data", [b"no json", b'{"facts":"abc"}', b'{"facts":{"message":1}}'])
def test_a_damaged_failure_ends_its_call(data: bytes) -> None:
    async def ask(address: str) -> None:
        link = Link(address, TOKEN, LOST_S)
        try:
            await link.greet()
            call = link.ask(Kind.CALL, table_bytes({"call": "memory"}))
            async with asyncio.timeout(HANGING_S):
                await settled(call)
        finally:
            link.close()

    with (
        stage_that_answers(GREETING, (Kind.FAILURE, data)) as address,
        pytest.raises(DeviceLostError, match="was lost"),
    ):
        asyncio.run(ask(address))


def test_a_step_that_hangs_ends_the_connection() -> None:
    """A call that is no step may take as long as it likes: a load of 40 GB takes minutes."""

    async def ask(address: str) -> None:
        link = Link(address, TOKEN, LOST_S, hung_s=0.5)
        try:
            await link.greet()
            load = link.ask(Kind.CALL, table_bytes({"call": "load"}))
            await asyncio.sleep(1.5)
            assert not load.done()
            async with asyncio.timeout(HANGING_S):
                await settled(link.ask(Kind.RUN, b"step"))
        finally:
            link.close()

    with (
        stage_that_answers(GREETING) as address,
        pytest.raises(DeviceLostError, match=r"no step ended in 0\.5 s"),
    ):
        asyncio.run(ask(address))
