"""A row of the route table."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from camelid.server.fields.kinds import Schema
from camelid.server.fields.table import Table
from camelid.server.http.call import Call
from camelid.server.http.reply import JSON_TYPE, Reply

if TYPE_CHECKING:
    from camelid.server.server import Server

Handle = Callable[["Server", Call], Awaitable[Reply]]


@dataclass(frozen=True, slots=True)
class Route:
    """A method and path, their handler, the table of their body, and the scope that a key needs.

    `query` are the parameters behind the question mark, as JSON schemas; `media` is the type of a reply.
    """

    method: str
    path: str
    handle: Handle
    table: Table | None = None
    scope: str = "use"
    query: Mapping[str, Schema] = field(default_factory=dict[str, Schema])
    media: str = JSON_TYPE
