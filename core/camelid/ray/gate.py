"""The entrance of a Ray application: reads a request whole, and relays the reply of the chosen replica.

Ray's proxy routes by path alone. The gate reads the prompt too, so that the router sees its head.
"""

# pyright: reportMissingImports=false, reportUnknownVariableType=false, reportUnknownMemberType=false
# pyright: reportUnknownParameterType=false, reportUnknownArgumentType=false, reportUntypedBaseClass=false
# (Ray is not installed to lint.)

from __future__ import annotations

import asyncio
import json
from typing import Any

from ray.exceptions import RayError
from ray.serve.exceptions import BackPressureError, RayServeException
from ray.serve.handle import DeploymentHandle
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from camelid.ray.affinity import Affinity, affinity_of
from camelid.ray.replica import MAX_BODY
from camelid.server.http.body import Bodies, ClientGone, read_body
from camelid.server.http.call import INLINE_BYTES, PARSERS
from camelid.server.http.errors import ApiError, dialect_of, retry_later
from camelid.server.http.reply import LINES_TYPE

# Plain values of an ASGI scope, which travel to the replica.
SCOPE = ("type", "asgi", "http_version", "method", "scheme", "path", "raw_path", "query_string", "root_path",
         "headers", "client", "server")  # fmt: skip
RETRY_S = 1.0
MAX_BODIES = 16 * MAX_BODY  # bytes of all bodies that are being read
GONE = 499  # the status of a reply that nobody reads


class Gate:
    """Passes every request on, whatever its route; those of slots only to a replica that is alone."""

    def __init__(self, replicas: DeploymentHandle[Any], *, has_slots: bool) -> None:
        self._answer: Any = replicas.options(method_name="answer", stream=True)
        self._has_slots = has_slots
        self._bodies = Bodies(MAX_BODIES)

    async def __call__(self, request: Request) -> Response:
        """The reply of a replica, relayed as it comes."""
        path = request.scope["path"]
        try:
            if is_of_slots(path) and not self._has_slots:
                raise no_slots()
            with self._bodies.hold() as hold:
                body = await read_body(request.receive, MAX_BODY, hold)
                known = await affinity(path, body)
        except ApiError as error:
            return Failure(error, path, request_id(request))
        except ClientGone:
            return Response(status_code=GONE)
        scope = {name: request.scope[name] for name in SCOPE if name in request.scope}
        scope["headers"] = [(bytes(name), bytes(value)) for name, value in scope["headers"]]
        replies = self._answer.remote(known, scope, body)
        return Relay(replies, path, request_id(request))


async def affinity(path: str, body: bytes) -> Affinity:
    """The affinity of a request; of a long body in a thread, so that no other relay waits for its parser."""
    if len(body) <= INLINE_BYTES:
        return affinity_of(path, body)
    return await asyncio.get_running_loop().run_in_executor(PARSERS, affinity_of, path, body)


def is_of_slots(path: str) -> bool:
    """True for the routes of slots."""
    return path == "/slots" or path.startswith("/slots/")


def no_slots() -> ApiError:
    """The refusal of a route of slots: its number means another slot on each replica."""
    return ApiError(
        501, "an application of several replicas has no /slots: each replica has slots of its own; a prompt "
        "returns to the replica that has its prefix cached without them", code="not_supported",
    )  # fmt: skip


def request_id(request: Request) -> str:
    return request.headers.get("x-request-id", "")


class Relay(Response):
    """Sends the messages of a replica; ends with a clear error where the replica is lost."""

    def __init__(self, replies: Any, path: str, id: str) -> None:
        super().__init__()
        self._replies, self._path, self._id = replies, path, id
        self._is_started, self._type = False, ""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Relays until the reply ends; a client that leaves cancels the replica's work."""
        try:
            async for messages in self._replies:
                for message in messages:
                    self._note(message)
                    await send(without_id(message))
        except (RayError, RayServeException) as error:
            await self._fail(lost(error), scope, receive, send)
        except (OSError, ClientDisconnect):
            self._replies.cancel()
        except BaseException:
            self._replies.cancel()
            raise

    def _note(self, message: Message) -> None:
        """Keeps the content type of the begun reply, which is the form of a later error."""
        self._is_started = True
        if message["type"] == "http.response.start":
            self._type = next((v.decode() for name, v in message["headers"] if name == b"content-type"), "")

    async def _fail(self, error: ApiError, scope: Scope, receive: Receive, send: Send) -> None:
        if not self._is_started:
            await Failure(error, self._path, self._id)(scope, receive, send)
            return
        data = json.dumps(dialect_of(self._path)(error, self._id))
        frame = f"{data}\n" if self._type.startswith(LINES_TYPE) else f"event: error\ndata: {data}\n\n"
        await send({"type": "http.response.body", "body": frame.encode(), "more_body": False})


def without_id(message: Message) -> Message:
    """A message without the request's id, which Ray's proxy adds to every reply."""
    if message["type"] == "http.response.start":
        message["headers"] = [pair for pair in message["headers"] if pair[0] != b"x-request-id"]
    return message


class Failure(Response):
    """An error in the dialect of its path."""

    def __init__(self, error: ApiError, path: str, id: str) -> None:
        content = json.dumps(dialect_of(path)(error, id))
        super().__init__(content, error.status, error.headers, "application/json")


def lost(error: Exception) -> ApiError:
    """The reply for a request that no replica could finish; another attempt may."""
    if isinstance(error, BackPressureError):
        return retry_later(503, "every replica is full; try again later", RETRY_S, "server_is_overloaded")
    return retry_later(
        503, f"the replica of this request was lost ({type(error).__name__}); send it again", RETRY_S,
        "replica_lost",
    )  # fmt: skip
