"""A hub id on the command line: fetched with a bar on a terminal, and notes on stderr."""

from __future__ import annotations

from contextlib import ExitStack

from camelid.cli.command import say, writing_bar
from camelid.formats.hub.fetch import Fetched, Progress, fetch
from camelid.formats.hub.ids import HubId
from camelid.loading.model_file import find_hub_id


def local_path(model: str) -> str:
    """The path of a hub id's model, fetched unless the cache has it; any other name is returned as it is."""
    hub_id = find_hub_id(model)
    return str(fetch_with_bar(hub_id).path) if hub_id else model


def fetch_with_bar(hub_id: HubId, *, offline: bool = False) -> Fetched:
    """`fetch` with notes, and a bar from the first byte on."""
    bars: list[Progress | None] = []
    try:
        with ExitStack() as stack:

            def report(name: str, done: int, total: int) -> None:
                if not bars:
                    bars.append(stack.enter_context(writing_bar()))
                if bar := bars[0]:
                    bar(name, done, total)

            return fetch(hub_id, offline=offline, progress=report, say=say)
    except KeyboardInterrupt:
        say("stopped; a large file's part is kept, and the same command resumes it")
        raise
