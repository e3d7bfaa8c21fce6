"""The watch over the engines: one that failed is loaded again."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress

from camelid.server.service.entry import MAX_PAUSE_S, Entry
from camelid.server.service.models import Models

LOG = logging.getLogger("camelid.server")
WATCH_S = 0.5  # between looks at the engines


async def watch(models: Models) -> None:
    """Looks after the engines until it is cancelled."""
    while True:
        await asyncio.sleep(WATCH_S)
        for entry in list(models):
            check(models, entry)


def check(models: Models, entry: Entry) -> None:
    """Marks a model whose engine failed, and loads it again, after pauses that double."""
    now = models.now()
    failure = entry.service.host.failure if entry.service else None
    if failure and not entry.is_lost:
        LOG.error("the engine of %s failed: %s", entry.row.name, failure)
        entry.state, entry.is_lost, entry.error = "failed", True, failure
        entry.retry = now + entry.pause_s
    if entry.is_lost and not entry.is_loading and now >= entry.retry and not models.is_draining:
        entry.pause_s = min(2 * entry.pause_s, MAX_PAUSE_S)
        entry.retry = now + entry.pause_s
        models.spawn(_revive(models, entry))


async def _revive(models: Models, entry: Entry) -> None:
    with suppress(Exception):  # the entry keeps the error
        await models.load(entry)
