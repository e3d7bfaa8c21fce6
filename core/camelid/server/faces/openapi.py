"""GET /openapi.json: an OpenAPI 3.1 document, made from the route table and the tables of fields."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from typing import Any

from camelid.server.fields.kinds import Schema, or_null
from camelid.server.fields.table import Table
from camelid.server.http.call import Call
from camelid.server.http.errors import (
    Dialect,
    anthropic_body,
    dialect_of,
    native_body,
    ollama_body,
    openai_body,
    responses_body,
)
from camelid.server.http.guard import PUBLIC
from camelid.server.http.reply import EVENT_TYPE, JSON_TYPE, LINES_TYPE, JsonReply, Reply
from camelid.server.http.route import Route
from camelid.server.server import Server
from camelid.version import __version__

PARAMETER = re.compile(r"\{(\w+)(?::\w+)?\}")
TEXT: Schema = {"type": "string"}


def closed(**properties: Schema) -> Schema:
    """An object that has all these properties."""
    return {"type": "object", "properties": properties, "required": list(properties)}


MESSAGE = closed(message=TEXT, type=TEXT)
OPENAI = closed(error=closed(message=TEXT, type=TEXT, param={}, code={}))
# Dialect -> schema of its errors.
ERRORS: Mapping[Dialect, Schema] = {
    openai_body: OPENAI,
    responses_body: OPENAI,
    native_body: closed(error=closed(message=TEXT, type=TEXT, code={"type": "integer"})),
    anthropic_body: closed(type={"const": "error"}, error=MESSAGE, request_id=TEXT),
    ollama_body: closed(error=TEXT),
}
STREAMS: Mapping[Dialect, str] = {ollama_body: LINES_TYPE}  # the others stream server-sent events
SECURITY: Mapping[str, Any] = {
    "bearer": {"type": "http", "scheme": "bearer"},
    "header": {"type": "apiKey", "in": "header", "name": "x-api-key"},
}


def document(routes: tuple[Route, ...]) -> dict[str, Any]:
    """The document of all routes."""
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        paths.setdefault(path_of(route), {})[route.method.lower()] = operation(route)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Camelid", "version": __version__},
        "paths": paths,
        "components": {"securitySchemes": SECURITY},
        "security": [{}, *({name: []} for name in SECURITY)],  # a server may run without keys
    }


def path_of(route: Route) -> str:
    """A route's path as the document writes it."""
    return PARAMETER.sub(r"{\1}", route.path)


def operation(route: Route) -> dict[str, Any]:
    """A route as an operation."""
    summary = (route.handle.__doc__ or route.path).partition("\n")[0]
    found: dict[str, Any] = {
        "operationId": operation_id(route),
        "summary": summary,
        "parameters": [*map(path_parameter, PARAMETER.findall(route.path)), *query_parameters(route)],
        "responses": responses(route),
    }
    if route.table:
        content = {JSON_TYPE: {"schema": body_schema(route.table)}}
        has_required = any(field.is_required for field in route.table.fields.values())
        found["requestBody"] = {"content": content, "required": has_required}
    if route.path in PUBLIC:
        found["security"] = []
    return found


def operation_id(route: Route) -> str:
    """A name of its own for each row."""
    path = PARAMETER.sub(r"by_\1", route.path)
    return re.sub(r"\W+", "_", f"{route.method.lower()}{path}").strip("_")


def path_parameter(name: str) -> dict[str, Any]:
    return {"name": name, "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}


def query_parameters(route: Route) -> list[dict[str, Any]]:
    return [{"name": name, "in": "query", "schema": schema} for name, schema in route.query.items()]


def responses(route: Route) -> dict[str, Any]:
    """The replies: success in the route's media types, and any error in its dialect's shape."""
    dialect = dialect_of(PARAMETER.sub("x", route.path))
    media: dict[str, Schema] = {route.media: {}}
    if route.table and "stream" in route.table.fields:
        media[STREAMS.get(dialect, EVENT_TYPE)] = {}
    error = {JSON_TYPE: {"schema": ERRORS[dialect]}}
    return {
        "200": {"description": "The answer.", "content": media},
        "default": {"description": "An error.", "content": error},
    }


def body_schema(table: Table) -> Schema:
    """The body of a table: null counts as absent, and a refused field may have the values without effect."""
    properties = {
        name: row.kind.schema() if row.is_required else or_null(row.kind.schema())
        for name, row in table.fields.items()
    }
    refused: dict[str, Schema] = {
        name: {"enum": [*row.allowed, None], "description": f"Not supported: {row.reason}."}
        for name, row in table.refused.items()
    }
    required = [name for name, row in table.fields.items() if row.is_required]
    return {"type": "object", "properties": {**properties, **refused}, "required": required}


def with_document(routes: tuple[Route, ...]) -> tuple[Route, ...]:
    """The routes, and the route of the document that describes all of them."""

    @cache
    def made() -> bytes:
        return JsonReply(document(described)).content()

    async def openapi(server: Server, call: Call) -> Reply:  # noqa: ARG001
        """The description of all endpoints."""
        return JsonReply(made())

    described = (*routes, Route("GET", "/openapi.json", openapi))
    return described
