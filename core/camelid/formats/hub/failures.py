"""Failures of a fetch as FetchErrors: one row per cause, each with the way out."""

from __future__ import annotations

import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

from camelid.errors import CamelidError, FetchError
from camelid.formats.hub.ids import HubId


def fail(hub_id: HubId, reason: str, text: str) -> NoReturn:
    """Raises a FetchError with the hub id before its message."""
    raise FetchError(f"{hub_id}{text}", model=str(hub_id), reason=reason)


@contextmanager
def translated(hub_id: HubId, cache: Path) -> Generator[None]:
    """Translates errors of huggingface_hub, its HTTP client and the disk to FetchErrors."""
    try:
        yield
    except CamelidError:
        raise
    except Exception as error:
        reason, text = _explain(hub_id, cache, error)
        if not reason:
            raise
        raise FetchError(f"{hub_id}{text}", model=str(hub_id), reason=reason) from error


def _explain(hub_id: HubId, cache: Path, error: Exception) -> tuple[str, str]:
    """(reason, rest of the message) of the first matching row; empty for an unforeseen error."""
    from huggingface_hub import constants, errors

    hub, revision = constants.ENDPOINT, hub_id.revision or "main"
    page, line = f"{hub}/{hub_id.name}", _first_line(error)
    unreachable = "network", f": {hub} cannot be reached ({line})"
    rows: tuple[tuple[type[Exception], tuple[str, str]], ...] = (
        (errors.GatedRepoError, ("gated", f" is gated: accept its terms at {page} and set HF_TOKEN to a "
                                          "token of that account")),
        (errors.RepositoryNotFoundError, ("missing", f" is no file here, and no repository at {hub}; check "
                                                     "the name, and set HF_TOKEN if it is private")),
        (errors.RevisionNotFoundError, ("missing", f": there is no revision {revision!r}; branches and "
                                                   f"tags are listed at {page}/tree/main")),
        (errors.LocalEntryNotFoundError, unreachable),
        (errors.EntryNotFoundError, ("missing", f": {page} lists a file that is not there; try again later")),
        (errors.HfHubHTTPError, _by_status(page, error)),
        # httpx or httpx2, by the version of huggingface_hub
        (errors.HTTPError, unreachable),  # pyright: ignore[reportPrivateImportUsage]
        (OSError, _disk(cache, error)),
        (ValueError, ("protocol", f": {hub} is no model hub ({line}); check HF_ENDPOINT")),
    )  # fmt: skip
    return next((found for kind, found in rows if isinstance(error, kind)), ("", ""))


def _by_status(page: str, error: Exception) -> tuple[str, str]:
    status, line = getattr(getattr(error, "response", None), "status_code", 0), _first_line(error)
    if status in {401, 403}:
        return "refused", f": HTTP {status}, access refused; check HF_TOKEN, and its rights at {page}"
    if status == 429 or status >= 500:
        return "network", f": the hub is unavailable ({line}); try again later"
    return "protocol", f": unexpected answer of the hub: {line}"


def _disk(cache: Path, error: Exception) -> tuple[str, str]:
    number = getattr(error, "errno", None)
    if not number:  # huggingface_hub compares sizes
        return "corrupt", f": the download is incomplete or damaged ({_first_line(error)}); try again"
    text = f": the cache {cache} cannot be written: {os.strerror(number)}"
    return "disk", f"{text}; set HF_HOME to another folder. A partial download stays, and resumes"


def _first_line(error: Exception) -> str:
    return next(iter(str(error).strip().splitlines()), "") or type(error).__name__
