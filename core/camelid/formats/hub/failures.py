"""What goes wrong between here and a hub, as FetchErrors: one row a cause, each with the way out."""

from __future__ import annotations

import errno
import os
from collections.abc import Generator
from contextlib import contextmanager
from typing import NoReturn

from camelid.errors import CamelidError, FetchError
from camelid.formats.hub.cache import Job

_FULL = {errno.ENOSPC, errno.EDQUOT}


def fail(job: Job, reason: str, text: str) -> NoReturn:
    """Raises a FetchError whose message opens with the hub id."""
    raise FetchError(f"{job.hub_id}{text}", model=str(job.hub_id), reason=reason)


@contextmanager
def translated(job: Job) -> Generator[None]:
    """What huggingface_hub, its HTTP client and the disk raise, as FetchErrors."""
    try:
        yield
    except CamelidError:
        raise
    except Exception as error:
        reason, text = explain(job, error)
        if not reason:
            raise
        raise FetchError(f"{job.hub_id}{text}", model=str(job.hub_id), reason=reason) from error


def explain(job: Job, error: Exception) -> tuple[str, str]:
    """(reason, rest of the message); the first row that fits. No reason: an error that nobody foresaw."""
    from huggingface_hub import errors

    hub, page = job.endpoint, job.page
    unreachable = "network", f": {hub} cannot be reached ({first_line(error)})"
    rows: tuple[tuple[type[Exception], tuple[str, str]], ...] = (
        (errors.GatedRepoError, ("gated", f" is gated: accept its terms at {page} and set HF_TOKEN to a "
                                          "token of that account")),
        (errors.RepositoryNotFoundError, ("missing", f" is no file here, and no repository at {hub}; check "
                                                     "the name, and set HF_TOKEN if it is private")),
        (errors.RevisionNotFoundError, ("missing", f": there is no revision {job.revision!r}; branches and "
                                                   f"tags are listed at {page}/tree/main")),
        (errors.LocalEntryNotFoundError, unreachable),
        (errors.EntryNotFoundError, ("missing", f": {page} lists a file that is not there; try again later")),
        (errors.OfflineModeIsEnabled, ("offline", ": fetching is switched off by HF_HUB_OFFLINE")),
        (errors.HfHubHTTPError, _by_status(job, error)),
        (http_error(), unreachable),
        (OSError, ("disk", _disk_text(job, error))),
        (ValueError, ("protocol", f": {hub} answered as no model hub does ({first_line(error)})")),
    )  # fmt: skip
    return next((found for kind, found in rows if isinstance(error, kind)), ("", ""))


def _by_status(job: Job, error: Exception) -> tuple[str, str]:
    status = getattr(getattr(error, "response", None), "status_code", 0)
    if status in {401, 403}:
        text = (
            f": {job.endpoint} refused the token ({status}); check HF_TOKEN, and that it may read {job.page}"
        )
        return "refused", text
    if status == 429 or status >= 500:
        return "network", f": {job.endpoint} cannot serve it now ({first_line(error)}); try again later"
    return "protocol", f": {job.endpoint} answered with {first_line(error)}"


def _disk_text(job: Job, error: Exception) -> str:
    number = getattr(error, "errno", None)
    reason = os.strerror(number) if number else first_line(error)
    kept = "; what came is kept, and the same command goes on from there" if number in _FULL else ""
    return f": the cache {job.cache} cannot be written: {reason}{kept}; HF_HOME names another place"


def first_line(error: Exception) -> str:
    """The first line of an error's text, else its name."""
    return next(iter(str(error).strip().splitlines()), "") or type(error).__name__


def http_error() -> type[Exception]:
    """The base of the HTTP client's errors: httpx or httpx2, whichever this huggingface_hub is built on."""
    from huggingface_hub import errors

    return errors.HTTPError  # pyright: ignore[reportPrivateImportUsage]
