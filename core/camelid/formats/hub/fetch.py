"""A hub id becomes a model's files on this disk."""

from __future__ import annotations

import asyncio
import os
import threading
import warnings
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TypeAlias

from camelid.errors import CamelidError, FetchError, RequestError
from camelid.formats.hub.cache import (
    COMMIT,
    Fetched,
    Job,
    Progress,
    Say,
    fetched,
    from_cache,
    has_whole,
    note_commit,
)
from camelid.formats.hub.download import TIMEOUT, check_room, into_cache, look_up
from camelid.formats.hub.failures import fail, translated
from camelid.formats.hub.ids import Choice, HubId, check_revision, choose_files, few, parse_hub_id

Listing: TypeAlias = dict[str, tuple[int | None, str | None]]  # name -> (size, sha256 where the hub has one)


def fetch(
    hub_id: HubId | str,
    *,
    revision: str | None = None,
    progress: Progress | None = None,
    offline: bool | None = None,
    cache_dir: str | os.PathLike[str] | None = None,
    say: Say | None = None,
) -> Fetched:
    """A model's files, fetched unless the cache has them; blocks until they are there.

    `revision` is a branch, tag or commit. `offline` uses the cache alone (None: as HF_HUB_OFFLINE says).
    `progress` is told (file, bytes so far, of how many); what it raises stops the fetch, and the partial file
    stays for the next one. `say` is told what a person should know, such as which quant was taken; without
    it these are warnings. HF_ENDPOINT, HF_HOME and HF_TOKEN count as for huggingface_hub.

    FetchError if the hub cannot be reached, refuses, or sends what its checksum does not allow; RequestError
    for an id or quant that means nothing; UnsupportedModelError for a repository without a readable model;
    ModelFormatError for one that lists names outside its folder.
    """
    job, is_offline = _job(hub_id, revision, progress or _silent, offline, cache_dir, say or _warn)
    if is_offline:
        return _offline(job)
    try:
        with translated(job):
            listing, commit = _list(job)
    except FetchError as error:
        return _without_network(job, error)
    with translated(job):
        return _fetch_chosen(job, listing, commit)


async def afetch(hub_id: HubId, *, progress: Progress | None = None) -> Fetched:
    """`fetch` in a thread, so that the event loop goes on. Cancelling stops it at the next piece."""
    stop = threading.Event()

    def report(what: str, done: int, of: int) -> None:
        if stop.is_set():
            raise FetchError(f"{hub_id}: the fetch was stopped", model=str(hub_id), reason="stopped")
        if progress:
            progress(what, done, of)

    try:
        return await asyncio.to_thread(fetch, hub_id, progress=report)
    finally:
        stop.set()


def _job(
    hub_id: HubId | str,
    revision: str | None,
    progress: Progress,
    offline: bool | None,
    cache_dir: str | os.PathLike[str] | None,
    say: Say,
) -> tuple[Job, bool]:
    from huggingface_hub import constants

    wanted = parse_hub_id(hub_id) if isinstance(hub_id, str) else hub_id
    if wanted is None:
        raise RequestError(
            f"{hub_id!r} is no hub id; expected owner/repo, owner/repo:QUANT or owner/repo@REVISION:QUANT",
            field="model",
        )
    if revision and wanted.revision not in {None, revision}:
        raise RequestError(f"{wanted} names a revision, and {revision!r} is another one", field="revision")
    wanted = replace(wanted, revision=check_revision(revision) or wanted.revision)
    # Read at each call: huggingface_hub reads it once, when it is imported.
    endpoint = (os.environ.get("HF_ENDPOINT") or constants.ENDPOINT).rstrip("/")
    cache = Path(cache_dir or constants.HF_HUB_CACHE).expanduser().absolute()
    return Job(
        wanted, endpoint, cache, progress, say
    ), constants.HF_HUB_OFFLINE if offline is None else offline


def _silent(what: str, done: int, of: int) -> None:
    """No progress is shown."""


def _warn(message: str) -> None:
    warnings.warn(message, UserWarning, stacklevel=2)


def _list(job: Job) -> tuple[Listing, str]:
    """The files of a revision, and its commit."""
    from huggingface_hub import HfApi

    try:
        info = HfApi(endpoint=job.endpoint).model_info(
            job.hub_id.name, revision=job.revision, files_metadata=True, timeout=TIMEOUT
        )
    except (KeyError, TypeError, AttributeError) as error:  # JSON, but not what a hub says
        fail(job, "protocol", f": {job.endpoint} answered as no model hub does ({error!r})")
    if not info.sha or not COMMIT.fullmatch(info.sha):
        fail(job, "protocol", f": {job.endpoint} answered without a commit; is it a model hub?")
    listing = {s.rfilename: (s.size, s.lfs.sha256 if s.lfs else None) for s in info.siblings or []}
    return listing, info.sha


def _fetch_chosen(job: Job, listing: Listing, commit: str) -> Fetched:
    choice = choose_files(listing, job.hub_id.quant, place=job.place)
    _check_listed(job, choice, listing)
    if choice.note:
        job.say(choice.note)
    folder = job.snapshot(commit)
    missing = [name for name in choice.files if not has_whole(job, folder / name, listing[name][0])]
    files = [look_up(job, name, commit=commit, sha256=listing[name][1]) for name in missing]
    check_room(job, files)
    done, total = 0, sum(file.size for file in files)
    for file in files:
        into_cache(job, file, commit=commit, told=partial(_told, job.progress, file.name, done, total))
        done += file.size
    note_commit(job, commit)
    return fetched(job, choice, commit)


def _check_listed(job: Job, choice: Choice, listing: Listing) -> None:
    """A model in parts is fetched with all of them, or not at all."""
    absent = [name for name in choice.files if name not in listing]
    if absent:
        text = f": {job.page} lacks {few(absent)} of the model's {len(choice.files)} files"
        fail(job, "missing", f"{text}; choose another quant, or try again when its upload is complete")


def _told(progress: Progress, name: str, before: int, total: int, n_bytes: int) -> None:
    progress(name, before + n_bytes, total)


def _offline(job: Job) -> Fetched:
    found = from_cache(job)
    if not found:
        why = "fetching is switched off (--offline or HF_HUB_OFFLINE)"
        fail(
            job, "offline", f" is not whole in the cache {job.cache}, and {why}; fetch it once with a network"
        )
    return found


def _without_network(job: Job, error: FetchError) -> Fetched:
    """What was fetched earlier, if the hub cannot be reached; else that error."""
    try:
        found = from_cache(job) if error.facts["reason"] == "network" else None
    except CamelidError:  # the cache has something of it, and not this
        found = None
    if not found:
        raise error
    job.say(f"{error.message}; using what was fetched earlier, commit {found.commit[:12]}")
    return found
