"""Options of every connection: replies leave at once, and a silent peer is given up."""

from __future__ import annotations

import asyncio
import socket
import time

from tests.support.served import Served

from camelid.server.http.listen import SILENCE, listen


def test_small_replies_do_not_wait_for_acknowledgements(server: Served) -> None:
    times = list[float]()
    for _ in range(20):
        start = time.perf_counter()
        assert server.get("/v1/models").status_code == 200
        times.append(time.perf_counter() - start)
    assert sorted(times)[10] < 0.03


Option = tuple[int, str]


def accepted(*options: Option) -> list[int]:
    """Options of a connection that asyncio's server accepts."""

    async def run() -> list[int]:
        found = asyncio.get_running_loop().create_future()

        async def serve(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            own = writer.get_extra_info("socket")
            found.set_result([own.getsockopt(level, getattr(socket, name)) for level, name in options])
            writer.close()

        with listen("127.0.0.1", 0) as listener:
            server = await asyncio.start_server(serve, sock=listener)
            async with server:
                _, writer = await asyncio.open_connection(*listener.getsockname())
                result = await found
                writer.close()
                return result

    return asyncio.run(run())


def test_accepted_sockets_send_without_delay() -> None:
    assert all(accepted((socket.IPPROTO_TCP, "TCP_NODELAY")))


def test_accepted_sockets_give_up_a_silent_peer() -> None:
    names = [name for name in SILENCE if hasattr(socket, name)]
    keeps, *values = accepted(
        (socket.SOL_SOCKET, "SO_KEEPALIVE"), *((socket.IPPROTO_TCP, name) for name in names)
    )
    assert keeps
    assert values == [SILENCE[name] for name in names]
