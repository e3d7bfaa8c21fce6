"""Models downloaded from a hub, with a progress bar on a terminal and notes on stderr."""

from __future__ import annotations

from contextlib import ExitStack

from camelid.cli.command import say, writing_bar
from camelid.formats.hub.fetch import Fetched, Progress, fetch
from camelid.formats.hub.ids import HubId
from camelid.loading.model_file import find_hub_id


def local_path(model: str) -> str:
    """The local path of a MODEL argument: a hub id is downloaded unless cached, another name is unchanged."""
    hub_id = find_hub_id(model)
    return str(fetch_with_bar(hub_id).path) if hub_id else model


def fetch_with_bar(hub_id: HubId, *, offline: bool = False) -> Fetched:
    """Calls `fetch` with notes on stderr; the bar appears with the first byte."""
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
        say("interrupted; partial files are kept, and the same command resumes the download")
        raise
