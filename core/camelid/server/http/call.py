"""One HTTP request as endpoints read it: headers, key, id and body."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, NoReturn, cast

from starlette.datastructures import Headers, QueryParams
from starlette.types import Message, Receive, Scope

from camelid.server.http.errors import ApiError
from camelid.server.http.keys import Key

BODY_S = 30.0  # between two parts of a body
MAX_WARNINGS = 8
MAX_DEPTH = 200  # nesting of a JSON body


@dataclass(slots=True)
class Call:
    """One request. `warnings` become a `Warning` header of the reply."""

    scope: Scope
    receive: Receive
    key: Key
    request_id: str
    max_body: int
    is_strict: bool = False
    warnings: list[str] = field(default_factory=list[str])
    closing: ExitStack = field(default_factory=ExitStack)  # closed after the reply
    body: bytes = b""

    @property
    def path(self) -> str:
        return self.scope["path"]

    @property
    def headers(self) -> Headers:
        return Headers(scope=self.scope)

    @property
    def params(self) -> dict[str, Any]:
        """The parameters in the path."""
        return self.scope.get("path_params", {})

    @property
    def query(self) -> QueryParams:
        """The parameters behind the path's question mark."""
        return QueryParams(self.scope.get("query_string", b"").decode("latin-1"))

    def unknown(self, name: str) -> None:
        """Notes a field that no API has. Raises ApiError 400 under --strict."""
        shown = name[:80].encode("ascii", "replace").decode().replace('"', "'").replace("\\", "/")
        if self.is_strict:
            raise ApiError(400, f"the field '{shown}' is unknown", code="unknown_field", param=shown)
        if len(self.warnings) < MAX_WARNINGS:
            self.warnings.append(f"the field '{printable(shown)}' is unknown and was ignored")

    async def read(self) -> None:
        """Reads the body. Raises ApiError 413 beyond `max_body` bytes."""
        chunks, size, more = list[bytes](), 0, True
        while more:
            message = await self._message()
            if message["type"] == "http.disconnect":
                raise ClientGone
            chunks.append(message.get("body", b""))
            size += len(chunks[-1])
            if size > self.max_body:
                raise too_large(self.max_body)
            more = message.get("more_body", False)
        self.body = b"".join(chunks)

    async def _message(self) -> Message:
        try:
            async with asyncio.timeout(BODY_S):
                return await self.receive()
        except TimeoutError:
            raise ApiError(
                408, f"no byte of the body came within {BODY_S:g} s", code="body_timeout",
                headers={"connection": "close"},
            ) from None  # fmt: skip

    def json(self) -> dict[str, Any]:
        """The body as a JSON object. Raises ApiError 400."""
        try:
            value = json.loads(self.body or b"{}", parse_constant=_refuse_constant)
        except RecursionError:
            raise ApiError(400, "the body's JSON is nested too deep", code="invalid_json") from None
        except ValueError as error:
            raise ApiError(400, f"the body is not valid JSON: {error}", code="invalid_json") from None
        if not isinstance(value, dict):
            raise ApiError(400, "the body is not a JSON object", code="invalid_json")
        fields = cast("dict[str, Any]", value)
        _check_depth(fields)
        _check_text(fields, self.body)
        return fields


def printable(text: str) -> str:
    """The text without control characters, which would end a header."""
    return "".join(c if c.isprintable() else "?" for c in text)


class ClientGone(Exception):
    """The client closed the connection."""


def too_large(limit: int) -> ApiError:
    return ApiError(
        413, f"the body is larger than {limit:,} bytes; shorten the request", code="request_too_large"
    )


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")


def _check_depth(value: object) -> None:
    """Raises ApiError for a nesting beyond MAX_DEPTH, which recursive readers of schemas do not survive."""
    level, depth = [value], 0
    while level := [child for item in level for child in _children(item)]:
        depth += 1
        if depth > MAX_DEPTH:
            raise ApiError(400, f"the body's JSON is nested deeper than {MAX_DEPTH}", code="invalid_json")


def _children(item: object) -> Iterable[object]:
    if isinstance(item, dict):
        return cast("dict[str, object]", item).values()
    return cast("list[object]", item) if isinstance(item, list) else ()


def _check_text(value: object, body: bytes) -> None:
    """Raises ApiError for half a surrogate pair, which no text may contain."""
    if b"\\ud" not in body.lower():
        return
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise ApiError(
            400, "the body has half of a surrogate pair (\\ud800 to \\udfff), which is no text",
            code="invalid_json",
        ) from None  # fmt: skip
