"""Ollama's names of models, and how long a model stays loaded."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from math import inf

from camelid.server.http.call import Call
from camelid.server.http.errors import ApiError
from camelid.server.server import Server
from camelid.server.service.entry import Entry

LATEST = ":latest"
NEVER = "2318-01-01T00:00:00Z"  # a model without an end of its time, as Ollama writes it
_TASKS = set[asyncio.Task[None]]()  # the event loop holds tasks weakly


async def entry_of(server: Server, name: str | None) -> Entry:
    """The entry of a name; `name:latest` is `name`. Raises ApiError 404, with the known names."""
    try:
        return await server.models.known(name)
    except ApiError:
        if not name or not name.endswith(LATEST):
            raise
        return await server.models.known(name.removesuffix(LATEST))


def served_name(entry: Entry, name: str | None) -> str:
    """The name of the adapter that a request names as its model, else its model's."""
    return entry.adapter((name or "").removesuffix(LATEST)) or entry.row.name


def tagged(name: str) -> str:
    """A name with its tag, as Ollama lists it."""
    return name if ":" in name.rpartition("/")[2] else name + LATEST


def time_text(moment: datetime) -> str:
    """A time as Ollama writes it."""
    return moment.isoformat().replace("+00:00", "Z")


def expiry(entry: Entry) -> str:
    """The time at which a model is unloaded if nobody uses it."""
    if entry.timer is None or entry.timer.cancelled():
        return NEVER
    left = entry.timer.when() - asyncio.get_running_loop().time()
    return time_text(datetime.now(UTC) + timedelta(seconds=left))


def keep_later(server: Server, entry: Entry, call: Call, keep_s: float | None) -> None:
    """Sets the idle time of a model once the reply is sent.

    The time concerns all users of the model: without an administrator's key, 0 raises ApiError 403, and
    another time is a warning.
    """
    if keep_s is None or "admin" in call.key.scopes:
        call.closing.callback(_keep_soon, server, entry, keep_s)
    elif keep_s == 0:
        raise ApiError(
            403, f"the key {call.key.name!r} may not unload a model; leave keep_alive 0 out",
            code="scope_missing",
        )  # fmt: skip
    else:
        call.warnings.append("keep_alive was ignored: the key has no scope 'admin'")


def _keep_soon(server: Server, entry: Entry, keep_s: float | None) -> None:
    task = asyncio.ensure_future(keep(server, entry, keep_s))
    _TASKS.add(task)
    task.add_done_callback(_TASKS.discard)


async def keep(server: Server, entry: Entry, keep_s: float | None) -> None:
    """Keeps a model for some idle seconds; without a number, for the server's own time.

    0 counts once: an idle model is unloaded, and the next load keeps it for the server's own time.
    """
    if keep_s == 0 and entry.is_idle and not entry.row.is_pinned:
        keep_s = None
        await server.models.unload(entry)
    seconds = entry.row.keep_alive_s if keep_s is None else keep_s
    server.models.keep(entry, -1.0 if seconds == inf else seconds)
