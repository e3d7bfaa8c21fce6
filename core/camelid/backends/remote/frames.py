"""Messages between an engine and a stage: a header, a JSON table, raw bytes. Nothing is pickled.

The connection is CURVE: encrypted, and open only to holders of the token. The stage's long-term keys are
derived from the token, and CURVE never sends a server's public key, so a peer without the token cannot
complete the handshake, and no frame of it is read.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from enum import IntEnum
from hashlib import blake2b
from struct import Struct
from typing import Any, NamedTuple

import zmq
import zmq.utils.z85 as z85

from camelid.errors import (
    BackendError,
    CamelidError,
    DeviceLostError,
    ModelFormatError,
    OutOfMemoryError,
    PlanError,
    RequestError,
    TensorShapeError,
    UnsupportedModelError,
)
from camelid.version import __version__

PROTOCOL = f"1, camelid {__version__}"  # both ends must have the same
MAX_FRAME_BYTES = 1 << 28  # of one frame: 64 rows of logits of a vocabulary of a million
MAX_FRAMES = 64
MIN_TOKEN_CHARS = 16
LOST_S = 5.0  # without a sign of life, a peer is lost
HEARTBEAT_S = 1.0
HEADER = Struct("<BQ")
ERRORS = {
    cls.__name__: cls
    for cls in (
        BackendError, DeviceLostError, ModelFormatError, OutOfMemoryError, PlanError, RequestError,
        TensorShapeError, UnsupportedModelError,
    )
}  # fmt: skip


class Kind(IntEnum):
    """Kind of a message. An engine sends HELLO, CALL, RUN and BYE; a stage the others."""

    HELLO = 1
    CALL = 2
    RUN = 3
    BYE = 4
    REPLY = 5
    FAILURE = 6
    PING = 7


class Message(NamedTuple):
    """A message: its kind, the number that joins a reply to its call, and its frames."""

    kind: Kind
    number: int
    frames: Sequence[bytes]


def header(kind: Kind, number: int = 0) -> bytes:
    return HEADER.pack(kind, number)


def message(frames: Sequence[bytes]) -> Message:
    """A received message. Raises BackendError for a header that is none."""
    if not 1 <= len(frames) <= MAX_FRAMES or len(frames[0]) != HEADER.size:
        raise damaged(f"{len(frames)} frames, of which the first is no header")
    kind, number = HEADER.unpack(frames[0])
    if kind not in Kind.__members__.values():
        raise damaged(f"it is of the unknown kind {kind}")
    return Message(Kind(kind), number, frames[1:])


def table_bytes(table: Any) -> bytes:
    return json.dumps(table, separators=(",", ":")).encode()


def table_at(frames: Sequence[bytes], i: int = 0) -> dict[str, Any]:
    """The table in a frame. Raises BackendError if it is none."""
    try:
        table = json.loads(frames[i])
    except (IndexError, ValueError, RecursionError) as error:
        raise damaged(f"frame {i} holds no JSON ({type(error).__name__})") from error
    if not isinstance(table, dict):
        raise damaged(f"frame {i} holds no table")
    return table  # pyright: ignore[reportUnknownVariableType]  # JSON


def damaged(what: str) -> BackendError:
    """The error of a message that breaks the protocol."""
    return BackendError(f"a message between engine and stage is damaged: {what}", backend="remote")


def error_bytes(error: Exception) -> bytes:
    """An error as a table; one that is not ours is a BackendError there."""
    if not isinstance(error, CamelidError):
        error = BackendError(f"{type(error).__name__}: {error}", backend="remote")
    name = type(error).__name__
    plain = {key: value for key, value in error.facts.items() if isinstance(value, str | int | float | None)}
    return table_bytes({"class": name, "message": error.message, "facts": plain})


def error_of(table: dict[str, Any]) -> CamelidError:
    """The error of a table."""
    facts = {str(key): value for key, value in dict(table.get("facts") or {}).items()}
    return ERRORS.get(str(table.get("class")), BackendError)(str(table.get("message")), **facts)


def keys_of(token: str) -> tuple[bytes, bytes]:
    """The stage's public and secret key. Raises RequestError for a token that could be guessed."""
    if len(token) < MIN_TOKEN_CHARS:
        raise RequestError(
            f"the token of the stages has {len(token)} characters, expected at least {MIN_TOKEN_CHARS}; "
            "secrets.token_urlsafe() makes one",
            field="token",
        )
    secret = z85.encode(blake2b(token.encode(), digest_size=32, person=b"camelid stage").digest())
    return zmq.curve_public(secret), secret


def bounded(socket: zmq.Socket[bytes], lost_s: float) -> None:
    """Bounds a socket: frame sizes, signs of life, and no wait at its end."""
    socket.setsockopt(zmq.LINGER, 0)
    socket.setsockopt(zmq.MAXMSGSIZE, MAX_FRAME_BYTES)
    socket.setsockopt(zmq.HEARTBEAT_IVL, int(1e3 * min(HEARTBEAT_S, lost_s / 2)))
    socket.setsockopt(zmq.HEARTBEAT_TIMEOUT, int(1e3 * lost_s))
    socket.setsockopt(zmq.HANDSHAKE_IVL, int(1e3 * lost_s))
