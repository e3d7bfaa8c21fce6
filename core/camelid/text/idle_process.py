"""A child process at idle priority and its parent: lists of byte strings over a pair of pipes."""

from __future__ import annotations

import json
import os
import signal
import sys
from array import array
from collections.abc import Sequence
from contextlib import suppress
from struct import Struct
from typing import IO

from camelid.errors import RequestError

MEMORY_BYTES = 2 << 30
LENGTH = Struct("<I")
# First parts of messages to the parent: a question of the child, a result, and an error of the request.
ASK, DONE, ERROR = b"?", b"=", b"!"


def send(stream: IO[bytes], parts: Sequence[bytes]) -> None:
    """Writes one message: the number of parts, then each part after its length."""
    stream.write(LENGTH.pack(len(parts)))
    for part in parts:
        stream.write(LENGTH.pack(len(part)))
        stream.write(part)
    stream.flush()


def receive(stream: IO[bytes]) -> list[bytes]:
    """Reads one message. Raises EOFError if the other end is gone."""
    return [exactly(stream, length(stream)) for _ in range(length(stream))]


def length(stream: IO[bytes]) -> int:
    return LENGTH.unpack(exactly(stream, LENGTH.size))[0]


def exactly(stream: IO[bytes], n_bytes: int) -> bytes:
    data = stream.read(n_bytes)
    if len(data) < n_bytes:
        raise EOFError("the other process has ended")
    return data


def packed_ids(token_ids: Sequence[int]) -> bytes:
    """Token ids as bytes."""
    return array("i", token_ids).tobytes()


def unpacked_ids(data: bytes) -> list[int]:
    """The token ids of `packed_ids`."""
    return array("i", data).tolist()


def packed_error(error: RequestError) -> bytes:
    """An error of a request as JSON text."""
    return json.dumps([error.message, error.facts], default=str).encode()


def unpacked_error(data: bytes) -> RequestError:
    """The error of `packed_error`."""
    message, facts = json.loads(data)
    return RequestError(message, **facts)


def become_idle() -> None:
    """Leaves the processor to every other process: SCHED_IDLE on Linux, the highest nice value elsewhere."""
    if sys.platform == "linux":
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    elif sys.platform != "win32":  # on Windows the parent sets the priority
        os.nice(19)


def limit_memory() -> None:
    """Limits the address space where the system can: a hostile request ends this process at most."""
    if sys.platform != "win32":
        import resource

        with suppress(ValueError, OSError):  # macOS refuses RLIMIT_AS
            resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))


def start() -> tuple[IO[bytes], IO[bytes]]:
    """Makes this process an idle child: its ends of the pipes, to read and to write."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C in a terminal reaches the whole process group
    become_idle()
    limit_memory()
    return sys.stdin.buffer, sys.stdout.buffer
