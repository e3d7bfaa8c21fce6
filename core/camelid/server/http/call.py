"""One HTTP request as endpoints read it: headers, key, id and body."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, Protocol

from starlette.datastructures import Headers, QueryParams
from starlette.types import Receive, Scope

from camelid.server.http.body import Bodies, read_body
from camelid.server.http.errors import ApiError
from camelid.server.http.json_body import json_list, json_object
from camelid.server.http.keys import Key

MAX_WARNINGS = 8
INLINE_BYTES = 64 << 10  # a longer body takes milliseconds to parse and check: it has a thread for both
PARSERS = ThreadPoolExecutor(2, "camelid json")


class Fields(Protocol):
    """The table of an endpoint's fields."""

    def read(self, body: Mapping[str, Any], call: Call) -> Any:
        """The checked values of a body. Raises ApiError 400."""
        ...


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
    spend: Callable[[int], object] = lambda n: n  # takes tokens from the key's budget, if it has one
    checked: tuple[Fields, Any] | None = None  # a table, and its fields of a long body
    _body: bytes = b""
    _fields: dict[str, Any] | None = None

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

    async def read(self, bodies: Bodies, table: Fields | None = None) -> None:
        """Reads the body, and holds its bytes until `closing`; a long one is parsed and checked, too.

        Raises ApiError 413 beyond `max_body` bytes, 408 for a slow body, 503 beyond the bytes of all bodies,
        400 for a long body that the table refuses, and ClientGone.
        """
        hold = self.closing.enter_context(bodies.hold())
        body = await read_body(self.receive, self.max_body, hold)
        if len(body) <= INLINE_BYTES or self.scope["method"] != "POST":
            self._body = body
            return
        loop = asyncio.get_running_loop()
        fields = await loop.run_in_executor(PARSERS, json_object, body)
        if table:
            self.checked = table, await loop.run_in_executor(PARSERS, table.read, fields, self)
        self._fields = fields

    def json_list(self) -> list[Any]:
        """The body as a JSON list, which is short. Raises ApiError 400."""
        return json_list(self._body)

    def json(self) -> dict[str, Any]:
        """The body as a JSON object. Raises ApiError 400."""
        return json_object(self._body) if self._fields is None else self._fields


def printable(text: str) -> str:
    """The text without control characters, which would end a header."""
    return "".join(c if c.isprintable() else "?" for c in text)
