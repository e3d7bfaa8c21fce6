"""One file from a hub into the cache: resumed, checked, then linked.

Addresses, tokens, locks and links are huggingface_hub's. The bytes are fetched here, since its own download
begins again from nothing after an interruption (2.4 deletes the partial file) and never compares what came
with the checksum. A partial file is `blobs/<etag>.incomplete`, resumed with an HTTP Range request.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from camelid.formats.hub.cache import Job
from camelid.formats.hub.failures import fail, http_error

TIMEOUT = 30.0  # seconds for a question; downloads take HF_HUB_DOWNLOAD_TIMEOUT
TRIES = 5  # in a row without one new byte
_ETAG = re.compile(r"[\w-]{8,128}", re.ASCII)  # it becomes a file's name
_KINDS = {64: "sha256", 40: "sha1"}  # what an etag of that length is


@dataclass(frozen=True, slots=True)
class HubFile:
    """One file to fetch: its address, the cache's name for its content, its size and checksum."""

    name: str
    url: str
    etag: str
    size: int
    sha256: str | None


def look_up(job: Job, name: str, *, commit: str, sha256: str | None) -> HubFile:
    """Asks the hub for a file's etag and size; it also says here whether this account may read it."""
    from huggingface_hub import get_hf_file_metadata, hf_hub_url  # pyright: ignore[reportUnknownVariableType]

    url = hf_hub_url(job.hub_id.name, name, revision=commit, endpoint=job.endpoint)
    meta = get_hf_file_metadata(url, timeout=TIMEOUT)
    if meta.size is None or not meta.etag or not _ETAG.fullmatch(meta.etag):
        fail(job, "protocol", f": {job.endpoint} tells no size and etag of {name}; is it a model hub?")
    return HubFile(name, url, meta.etag, meta.size, sha256)


def check_room(job: Job, files: Sequence[HubFile]) -> None:
    """Asked before a byte is fetched: is there room for all of them? FetchError if not."""
    held = [path.stat().st_size for f in files if (path := _incomplete(job, f)).is_file()]
    needed = sum(file.size for file in files) - sum(held)
    free = shutil.disk_usage(next(p for p in (job.cache, *job.cache.parents) if p.exists())).free
    if needed > free:
        text = f" needs {needed:,} bytes more, but {job.cache} has {free:,} free; make room, or set HF_HOME"
        fail(job, "disk", f"{text} to a folder on a larger disk")


def into_cache(job: Job, file: HubFile, *, commit: str, told: Callable[[int], object]) -> None:
    """One file's content into blobs/, and a link to it into snapshots/. `told` hears of bytes so far."""
    from huggingface_hub import hf_hub_download  # pyright: ignore[reportUnknownVariableType]
    from huggingface_hub.utils import WeakFileLock

    blob = job.storage / "blobs" / file.etag
    lock = job.cache / ".locks" / job.storage.name / f"{file.etag}.lock"  # the one that huggingface_hub takes
    for folder in (blob.parent, lock.parent):
        folder.mkdir(parents=True, exist_ok=True)
    with WeakFileLock(lock):
        if not blob.exists():
            _download(job, file, blob, told)
    told(file.size)
    # This finds the content and links it, or copies it where there are no links.
    hf_hub_download(job.hub_id.name, file.name, revision=commit, cache_dir=job.cache, endpoint=job.endpoint)


def _incomplete(job: Job, file: HubFile) -> Path:
    return job.storage / "blobs" / f"{file.etag}.incomplete"


def _download(job: Job, file: HubFile, blob: Path, told: Callable[[int], object]) -> None:
    incomplete = _incomplete(job, file)
    with incomplete.open("ab") as target:
        if target.tell() > file.size:
            _restart(target)
        _stream_all(job, file, target, told)
    if complaint := mismatch(incomplete, file):
        incomplete.unlink()
        text = f": {file.name} arrived damaged and was deleted: {complaint}; try again, and if it stays so, "
        fail(job, "corrupt", f"{text}the hub or a proxy on the way changes the file")
    incomplete.replace(blob)


def _restart(target: BinaryIO) -> None:
    target.seek(0)
    target.truncate()


def _stream_all(job: Job, file: HubFile, target: BinaryIO, told: Callable[[int], object]) -> None:
    """Appends what is missing; goes on after a cut connection for as long as new bytes come."""
    tries = 0
    while (held := target.tell()) < file.size:
        try:
            _stream(file, target, told)
        except http_error() as error:
            tries = 0 if target.tell() > held else tries + 1
            # An answer of the hub (it has a response) is final; a broken connection is not.
            if hasattr(error, "response") or tries >= TRIES:
                raise
            time.sleep(min(tries, 2))
            continue
        if target.tell() <= held:
            fail(
                job, "network", f": {file.name} ended after {held:,} of {file.size:,} bytes; try again later"
            )


def _stream(file: HubFile, target: BinaryIO, told: Callable[[int], object]) -> None:
    from huggingface_hub import constants
    from huggingface_hub.utils import (
        build_hf_headers,  # pyright: ignore[reportUnknownVariableType]
        get_session,
        hf_raise_for_status,
    )

    held = target.tell()
    headers = {**build_hf_headers(), "Accept-Encoding": "identity"}
    if held:
        headers["Range"] = f"bytes={held}-"
    timeout = constants.HF_HUB_DOWNLOAD_TIMEOUT
    # The session drops the token when it follows a redirect to another host.
    with get_session().stream("GET", file.url, headers=headers, timeout=timeout) as response:
        hf_raise_for_status(response)
        if held and response.status_code != 206:  # the whole file, whatever was asked for
            _restart(target)
        for chunk in response.iter_bytes():
            target.write(chunk)
            told(min(target.tell(), file.size))
            if target.tell() > file.size:
                return  # more than was announced: its size is the complaint


def mismatch(path: Path, file: HubFile) -> str:
    """How a file differs from what the hub says of it; empty if it does not.

    The etag of a large file is its SHA-256, that of a small one git's SHA-1 of a blob.
    """
    size = path.stat().st_size
    if size != file.size:
        return f"it has {size:,} bytes and not {file.size:,}"
    for kind, wanted in {("sha256", file.sha256), (_KINDS.get(len(file.etag), ""), file.etag)}:
        if kind and wanted and (found := _digest(path, kind, size)) != wanted:
            return f"its {kind} is {found} and not {wanted}"
    return ""


def _digest(path: Path, kind: str, size: int) -> str:
    start = b"" if kind == "sha256" else f"blob {size}\0".encode()
    digest = hashlib.new(kind, start, usedforsecurity=False)
    with path.open("rb") as file:
        while piece := file.read(1 << 20):
            digest.update(piece)
    return digest.hexdigest()
