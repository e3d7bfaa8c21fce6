"""Listening sockets, whose accepted connections inherit their options."""

from __future__ import annotations

import socket

from camelid.errors import BackendError

# s, s, probes, ms: a silent peer is probed after 30 s and given up after a minute, one that acknowledges
# nothing after two. Linux alone would wait 2 hours and 15 minutes: tcp(7).
SILENCE = {"TCP_KEEPIDLE": 30, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 3, "TCP_USER_TIMEOUT": 120_000}


def listen(host: str, port: int) -> socket.socket:
    """A listening socket. Raises BackendError if the address is unavailable."""
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listener = socket.create_server((host, port), family=family)
        # asyncio turns Nagle's algorithm off only for sockets that know their protocol, and this call leaves
        # it 0: a reply's second packet waited 40 ms for the client's acknowledgement of the first
        listener = socket.socket(fileno=listener.detach())
        bound_silence(listener)
        return listener
    except OSError as error:
        raise BackendError(
            f"cannot listen on {host} port {port}: {error.strerror or error}; choose another --port",
            backend="server",
        ) from error


def bound_silence(listener: socket.socket) -> None:
    """Ends accepted connections whose peer has vanished without a word, such as behind a lost network.

    Two minutes without an acknowledgement end a connection too, also that of a client which reads nothing.
    """
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in SILENCE.items():
        if option := getattr(socket, name, None):  # macOS and Windows lack some
            listener.setsockopt(socket.IPPROTO_TCP, option, value)
