"""Models downloaded from a hub, with a progress bar on a terminal and notes on stderr."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any

from camelid.cli.command import say, writing_bar
from camelid.formats.hub.fetch import Fetched, Progress, fetch
from camelid.formats.hub.ids import HubId
from camelid.loading.model_file import find_hub_id


def local_path(model: str) -> str:
    """The local path of a MODEL argument: a hub id is downloaded unless cached, another name is unchanged."""
    hub_id = find_hub_id(model)
    return str(fetch_with_bar(hub_id).path) if hub_id else model


def local_adapter(adapter: str) -> str:
    """As `local_path`, of an ADAPTER argument."""
    hub_id = find_hub_id(adapter)
    return str(fetch_with_bar(hub_id, is_adapter=True).path) if hub_id else adapter


def local_model(model: str, options: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """As `local_path`, with the load options: a hub's mmproj file is downloaded if they leave it open."""
    hub_id = find_hub_id(model)
    if hub_id is None:
        return model, {**options}
    is_open = options["mmproj"] is None and options["mmproj_auto"]
    fetched = fetch_with_bar(hub_id, with_mmproj=is_open)
    return str(fetched.path), {**options, **({"mmproj": str(fetched.mmproj)} if fetched.mmproj else {})}


def fetch_with_bar(
    hub_id: HubId, *, offline: bool = False, with_mmproj: bool = False, is_adapter: bool = False
) -> Fetched:
    """Calls `fetch` with notes on stderr; the bar appears with the first byte."""
    bars: list[Progress | None] = []
    try:
        with ExitStack() as stack:

            def report(name: str, done: int, total: int) -> None:
                if not bars:
                    bars.append(stack.enter_context(writing_bar()))
                if bar := bars[0]:
                    bar(name, done, total)

            return fetch(
                hub_id, offline=offline, with_mmproj=with_mmproj, is_adapter=is_adapter, progress=report,
                say=say,
            )  # fmt: skip
    except KeyboardInterrupt:
        say("interrupted; partial files are kept, and the same command resumes the download")
        raise
