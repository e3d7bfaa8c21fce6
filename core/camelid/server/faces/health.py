"""Liveness and readiness."""

from __future__ import annotations

from camelid.server.http.call import Call
from camelid.server.http.errors import ApiError, retry_later
from camelid.server.http.reply import JsonReply, Reply
from camelid.server.http.route import Route
from camelid.server.server import Server


async def live(server: Server, call: Call) -> Reply:  # noqa: ARG001
    """200 while the process serves, also while it drains."""
    return JsonReply({"status": "ok"})


async def ready(server: Server, call: Call) -> Reply:  # noqa: ARG001
    """200 while requests are taken; 503 while loading or draining, and after an engine's failure."""
    lost = server.models.lost
    if lost:
        raise retry_later(
            503, f"the engine of {', '.join(lost)} failed and is loaded again", 1, "engine_failed"
        )
    if server.phase == "ready":
        return JsonReply({"status": "ok"})
    reasons = {"loading": "Loading model", "draining": "the server is shutting down"}
    raise ApiError(503, reasons[server.phase], headers={"retry-after": "1"})


ROUTES = (
    *(Route("GET", path, ready) for path in ("/health", "/v1/health", "/ready", "/v2/health/ready")),
    *(Route("GET", path, live) for path in ("/live", "/v2/health/live")),
)
