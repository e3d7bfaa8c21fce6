"""GET /metrics for Prometheus, and GET /v1/stats for the page's live panel. Neither loads a model."""

from __future__ import annotations

from camelid.server.http.call import Call
from camelid.server.http.errors import ApiError
from camelid.server.http.reply import JsonReply, Reply
from camelid.server.http.route import Route
from camelid.server.metrics.panel import stats_object
from camelid.server.server import Server

START = "process-start-time-unix"  # llama-server's header


async def metrics(server: Server, call: Call) -> Reply:
    """The metrics as text; 501 where they are off."""
    exposition = server.operations.exposition
    if exposition is None:
        raise ApiError(501, "this server does not offer metrics; start it without --no-metrics")
    text, media_type = exposition.text(call.headers.get("accept", ""))
    return JsonReply(text, headers={START: str(int(server.started))}, media_type=media_type)


async def stats(server: Server, call: Call) -> Reply:  # noqa: ARG001
    """The present load."""
    return JsonReply(stats_object(server.operations.snapshot(), server.phase))


ROUTES = (Route("GET", "/metrics", metrics, media="text/plain"), Route("GET", "/v1/stats", stats))
