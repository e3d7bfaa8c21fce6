"""The ASGI application: guard, routes, replies."""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping

from starlette.datastructures import Headers
from starlette.routing import compile_path
from starlette.types import Receive, Scope, Send

from camelid.server.faces import (
    anthropic,
    chat_completions,
    completions,
    embeddings,
    health,
    learning,
    lora,
    metrics,
    models,
    native_completions,
    native_embedding,
    native_infill,
    native_text,
    ollama,
    ollama_models,
    openapi,
    page,
    props,
    rerank,
    responses,
    slots,
)
from camelid.server.http.call import Call
from camelid.server.http.errors import ApiError, dialect_of
from camelid.server.http.keys import ANONYMOUS, Key, KeyRing
from camelid.server.http.reply import Handler, JsonReply, Responder
from camelid.server.http.route import Route
from camelid.server.server import Server

FACES = (
    chat_completions,
    completions,
    responses,
    embeddings,
    rerank,
    anthropic,
    ollama,
    ollama_models,
    native_completions,
    native_text,
    native_infill,
    native_embedding,
    props,
    slots,
    learning,
    models,
    lora,
    health,
    metrics,
    page,
)
ROUTES = openapi.with_document(tuple(route for face in FACES for route in face.ROUTES))
OUTSIDE = "camelid.outside"  # mark of a path without the prefix
REQUEST_ID = re.compile(r"[\x21-\x7e]{1,128}")


class App:
    """One server as an ASGI application."""

    def __init__(self, server: Server, routes: tuple[Route, ...] = ROUTES) -> None:
        self.server = server
        by_path: dict[str, dict[str, Route]] = {}
        for route in routes:
            by_path.setdefault(route.path, {})[route.method] = route
        self._prefix = server.settings.api_prefix
        self._exact = {path: rows for path, rows in by_path.items() if "{" not in path}
        self._patterns = [(compile_path(path)[0], rows) for path, rows in by_path.items() if "{" in path]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers one request; the lifespan is the server process's."""
        if scope["type"] != "http":
            return
        scope = without_prefix(scope, self._prefix)
        headers, guard = Headers(scope=scope), self.server.guard
        call = Call(scope, receive, ANONYMOUS, request_id(headers), guard.max_body, self.server.is_strict)
        fixed = {"x-request-id": call.request_id, **guard.cors(headers)}
        responder = Responder(call, send, dialect_of(call.path), fixed)
        is_preflight = scope["method"] == "OPTIONS" and "access-control-request-method" in headers
        record = self.server.operations.begin(call)
        try:
            await responder.run(self._preflight if is_preflight else self._handler)
        finally:
            self.server.operations.end(record, responder.status, responder.error)

    async def _preflight(self, call: Call) -> Handler:
        headers = call.headers
        if not self.server.guard.allows(headers.get("origin", "")):
            raise ApiError(403, "this origin is not allowed; list it by --cors-origin", code="origin_refused")
        reply = JsonReply(b"", 204, self.server.guard.preflight(headers))

        async def answer(call: Call) -> JsonReply:  # noqa: ARG001
            return reply

        return answer

    async def _handler(self, call: Call) -> Handler:
        """The handler of a call whose key, scope and budget are checked, and whose body is read."""
        guard = self.server.guard
        call.key = guard.check(call.scope)
        route = call.scope["camelid.route"] = self._route(call)
        check_scope(call.key, route, guard.keys)
        if route.method == "POST" and call.key.digest:
            budget = guard.budget(call.key)
            budget.enter()
            call.closing.callback(budget.leave)
            call.spend = budget.spend
        await call.read(guard.bodies, route.table)
        return lambda call: route.handle(self.server, call)

    def _route(self, call: Call) -> Route:
        """The row of a path and method; sets the path's parameters. Raises ApiError 404 or 405."""
        if OUTSIDE in call.scope:
            raise ApiError(
                404, f"there is no endpoint {call.path!r:.200} here; paths begin with {self._prefix}",
                code="not_found",
            )  # fmt: skip
        rows = self._exact.get(call.path)
        if rows:
            return self._row(rows, call)
        for pattern, rows in self._patterns:
            found = pattern.match(call.path)
            if found:
                call.scope["path_params"] = found.groupdict()
                return self._row(rows, call)
        raise ApiError(404, f"there is no endpoint {call.path!r:.200} here", code="not_found")

    def _row(self, rows: Mapping[str, Route], call: Call) -> Route:
        method = "GET" if call.scope["method"] == "HEAD" else call.scope["method"]
        if method in rows:
            return rows[method]
        allowed = ", ".join(rows)
        raise ApiError(
            405, f"{call.path:.200} takes {allowed}, not {method:.20}", code="method_not_allowed",
            headers={"allow": allowed},
        )  # fmt: skip


def without_prefix(scope: Scope, prefix: str) -> Scope:
    """The request with its path behind the prefix of --api-prefix; a path without the prefix is marked."""
    if not prefix:
        return scope
    path: str = scope["path"]
    if path != prefix and not path.startswith(f"{prefix}/"):
        return {**scope, OUTSIDE: True}
    return {**scope, "path": path.removeprefix(prefix) or "/"}


def check_scope(key: Key, route: Route, keys: KeyRing) -> None:
    """Raises ApiError 403 for a key without the route's scope."""
    if keys and key.digest and route.scope not in key.scopes:
        raise ApiError(
            403, f"the key {key.name!r} has no scope {route.scope!r}; use a key that has it",
            code="scope_missing",
        )  # fmt: skip


def request_id(headers: Headers) -> str:
    """The client's own request id if it is harmless, else a random one."""
    own = headers.get("x-request-id", "")
    return own if REQUEST_ID.fullmatch(own) else f"req_{secrets.token_hex(12)}"
