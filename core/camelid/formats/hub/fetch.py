"""The fetch of a model from a hub into the cache of `huggingface_hub`, which other tools share.

Addresses, tokens, retries, locks and links are those of huggingface_hub. In addition, the download of a large
file resumes in a later process, from `blobs/<sha256>.incomplete`: huggingface_hub 2.4 deletes its partial
files.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import re
import shutil
import threading
import warnings
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, NoReturn, TypeAlias, cast

from camelid.errors import CamelidError, FetchError, RequestError, UnsupportedModelError
from camelid.formats.hub.failures import fail, translated
from camelid.formats.hub.ids import (
    HubId,
    abbreviated,
    choose_adapter,
    choose_files,
    choose_mmproj,
    parse_hub_id,
)
from camelid.formats.hub.peek import check_adapter
from camelid.formats.progress import Progress
from camelid.formats.sentence_transformers import MODULES, module_files

Say: TypeAlias = Callable[[str], object]
TIMEOUT = 30.0  # seconds for a listing; downloads use HF_HUB_DOWNLOAD_TIMEOUT
_COMMIT = re.compile(r"[0-9a-f]{40}")
_SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class Fetched:
    """A model on disk. `path` is a .gguf file (the first of several parts) or a directory of safetensors.

    `files` are all its files, `mmproj` among them the vision tower of a .gguf file.
    """

    hub_id: HubId
    path: Path
    files: tuple[Path, ...]
    commit: str
    mmproj: Path | None = None

    @property
    def n_bytes(self) -> int:
        """Size of all files."""
        return sum(file.stat().st_size for file in self.files)


class Remote(NamedTuple):
    """A file of a listing. `sha256` is None for a small file, which is in git and not in LFS."""

    size: int
    sha256: str | None


Listing: TypeAlias = dict[str, Remote]


class Chosen(NamedTuple):
    """The chosen files of a listing, the mmproj file among them, and notes for the user."""

    names: tuple[str, ...]
    mmproj: str | None
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Job:
    """One fetch: the model, its folder in the cache, the callbacks."""

    hub_id: HubId
    storage: Path
    progress: Progress
    say: Say
    with_mmproj: bool
    is_adapter: bool

    @property
    def revision(self) -> str:
        """Branch, tag or commit."""
        return self.hub_id.revision or "main"

    @property
    def place(self) -> str:
        """The repository's name in messages."""
        return str(replace(self.hub_id, quant=None))

    def snapshot(self, commit: str) -> Path:
        """The folder of a commit's files."""
        return self.storage / "snapshots" / commit

    def fetched(self, chosen: Chosen, commit: str) -> Fetched:
        """The chosen files of a commit's snapshot."""
        folder = self.snapshot(commit)
        files = tuple(folder / name for name in chosen.names)
        path = files[0] if chosen.names[0].lower().endswith(".gguf") else folder
        return Fetched(self.hub_id, path, files, commit, folder / chosen.mmproj if chosen.mmproj else None)


def fetch(
    hub_id: HubId | str,
    *,
    progress: Progress | None = None,
    offline: bool = False,
    with_mmproj: bool = False,
    is_adapter: bool = False,
    cache_dir: str | os.PathLike[str] | None = None,
    say: Say = warnings.warn,
) -> Fetched:
    """Fetches the files of a model or adapter, downloading those that are not cached. Blocks until all are
    complete.

    `offline` reads the cache only, like HF_HUB_OFFLINE. `with_mmproj` includes the vision tower of a .gguf
    file, by `choose_mmproj`, if the repository has one; `is_adapter` takes the repository for a LoRA adapter.
    `progress` receives (file name, bytes so far, total); an exception in it stops the fetch, and the partial
    file stays for the next fetch. `say` receives notes, such as the default quant.
    HF_ENDPOINT, HF_HOME and HF_TOKEN apply as in huggingface_hub.

    Raises FetchError for network, access, disk and checksum failures; RequestError for an unknown id or
    quant; UnsupportedModelError for a repository without a readable model; ModelFormatError for unsafe file
    names and a malformed modules.json.
    """
    from huggingface_hub import constants

    model = parse_hub_id(hub_id) if isinstance(hub_id, str) else hub_id
    if model is None:
        text = f"{hub_id!r} is no hub id; expected owner/repo, owner/repo:QUANT or owner/repo@REVISION:QUANT"
        raise RequestError(text, field="model")
    cache = Path(cache_dir or constants.HF_HUB_CACHE).expanduser().absolute()
    storage = cache / f"models--{model.owner}--{model.repo}"
    job = Job(model, storage, progress or _silent, say, with_mmproj, is_adapter)
    if offline or constants.HF_HUB_OFFLINE:
        return _from_cache(job) or _not_cached(job)
    try:
        with translated(model, cache):
            listing, commit = _list(job)
    except FetchError as error:
        return _without_network(job, error)
    with translated(model, cache):
        return _fetch_chosen(job, listing, commit)


async def afetch(
    hub_id: HubId, *, progress: Progress | None = None, with_mmproj: bool = False, is_adapter: bool = False
) -> Fetched:
    """Runs `fetch` in a thread, without blocking the event loop.

    Cancellation stops the download at its next chunk.
    """
    stop = threading.Event()

    def report(name: str, done: int, total: int) -> None:
        if stop.is_set():
            raise FetchError(f"{hub_id}: the fetch was stopped", model=str(hub_id), reason="stopped")
        if progress:
            progress(name, done, total)

    try:
        return await asyncio.to_thread(
            fetch, hub_id, progress=report, with_mmproj=with_mmproj, is_adapter=is_adapter
        )
    finally:
        stop.set()


def _silent(name: str, done: int, total: int) -> None: ...


def _list(job: Job) -> tuple[Listing, str]:
    """Lists the files of a revision. Returns the listing and the commit."""
    from huggingface_hub import HfApi

    try:
        info = HfApi().model_info(
            job.hub_id.name, revision=job.revision, files_metadata=True, timeout=TIMEOUT
        )
    except (KeyError, TypeError, AttributeError) as error:
        fail(job.hub_id, "protocol", f": the listing is not a model hub's ({error!r}); check HF_ENDPOINT")
    if not info.sha or not _COMMIT.fullmatch(info.sha):
        fail(job.hub_id, "protocol", ": the listing has no commit; check HF_ENDPOINT")
    return {f.rfilename: Remote(f.size or 0, _sha256(f.lfs)) for f in info.siblings or []}, info.sha


def _sha256(lfs: Any) -> str | None:
    """The checksum in a listing. It becomes a file name, so only 64 hex digits are accepted."""
    return lfs.sha256 if lfs and _SHA256.fullmatch(lfs.sha256) else None


def _fetch_chosen(job: Job, listing: Listing, commit: str) -> Fetched:
    chosen = _choose(job, listing, job.place)
    if MODULES in chosen.names:  # its text names further files
        _fetch_missing(job, {MODULES: listing[MODULES]}, commit)
        chosen = _with_modules(chosen, job.snapshot(commit))
    if absent := [name for name in chosen.names if name not in listing]:
        text = f": the repository lacks {abbreviated(absent)} of the model's {len(chosen.names)} files"
        fail(job.hub_id, "missing", f"{text}; choose another model or quant, or wait for the complete upload")
    for note in chosen.notes:
        job.say(note)
    _fetch_missing(job, {name: listing[name] for name in chosen.names}, commit)
    _note_commit(job, commit)
    return job.fetched(chosen, commit)


def _choose(job: Job, listing: Collection[str], place: str) -> Chosen:
    """The files of the model or adapter in a listing, less those that a modules.json names."""
    if job.is_adapter:
        return Chosen(choose_adapter(listing, job.hub_id.quant, repository=place), None, ())
    names, *notes = choose_files(listing, job.hub_id.quant, repository=place)
    if not job.with_mmproj:
        return Chosen(names, None, tuple(filter(None, notes)))
    mmproj, note = choose_mmproj(listing, names[0], repository=place)
    names = (*names, mmproj) if mmproj else names
    return Chosen(names, mmproj, tuple(filter(None, (*notes, note))))


def _with_modules(chosen: Chosen, folder: Path) -> Chosen:
    """Adds the files that a directory's modules.json names."""
    names = dict.fromkeys((*chosen.names, *module_files(folder / MODULES)))
    return chosen._replace(names=tuple(names))


def _fetch_missing(job: Job, files: Listing, commit: str) -> None:
    """Fetches the files that the cache lacks."""
    folder = job.snapshot(commit)
    missing = [name for name in files if not _is_whole(folder / name, files[name].size)]
    for name in missing if job.is_adapter else ():
        check_adapter(job.hub_id, name, commit)
    _check_room(job, [files[name] for name in missing])
    done, total = 0, sum(files[name].size for name in missing)
    for name in missing:
        bar = _bar(lambda n, name=name, before=done: job.progress(name, before + n, total))
        _fetch_file(job, name, files[name], commit, bar)
        done += files[name].size
        job.progress(name, done, total)


def _is_whole(path: Path, size: int) -> bool:
    return path.is_file() and path.stat().st_size == size


def _check_room(job: Job, files: Sequence[Remote]) -> None:
    """Raises FetchError if the disk has too little space for the files, less their partial downloads."""
    partials = [_partial(job, file.sha256) for file in files if file.sha256]
    needed = sum(f.size for f in files) - sum(path.stat().st_size for path in partials if path.is_file())
    free = shutil.disk_usage(next(p for p in job.storage.parents if p.exists())).free
    if needed > free:
        text = f" needs {needed:,} bytes more, but {job.storage.parent} has {free:,} free"
        fail(job.hub_id, "disk", f"{text}; free some, or set HF_HOME to a folder on a larger disk")


def _partial(job: Job, sha256: str) -> Path:
    return job.storage / "blobs" / f"{sha256}.incomplete"


def _bar(report: Callable[[int], object]) -> Any:
    """A class with tqdm's interface for plain HTTP downloads, which calls `report(bytes so far)`."""

    class Bar:
        def __init__(self, *_: object, initial: int = 0, **__: object) -> None:
            self.done = initial

        def __enter__(self) -> Bar:
            return self

        def __exit__(self, *_: object) -> None: ...

        def update(self, n: float | None = 1) -> None:
            self.done += int(n or 0)
            report(self.done)

    return Bar


def _fetch_file(job: Job, name: str, file: Remote, commit: str, bar: Any) -> None:
    """Fetches one file into the cache. A cached file of another size is damaged, and is replaced."""
    from huggingface_hub import constants, hf_hub_download  # pyright: ignore[reportUnknownVariableType]

    path = job.storage / "snapshots" / commit / name
    is_damaged = path.is_file()
    path.unlink(missing_ok=True)
    # hf_hub_download uses another protocol for files over this size.
    is_http = file.size <= constants.MAX_HTTP_DOWNLOAD_SIZE
    if is_http and not is_damaged and file.sha256:
        _fetch_blob(job, name, file.size, file.sha256, commit, bar)
    words: Any = {"cache_dir": job.storage.parent, "force_download": is_damaged}
    if not file.sha256:  # huggingface_hub shows its own bar for a large file
        words["tqdm_class"] = bar
    hf_hub_download(job.hub_id.name, name, revision=commit, **words)


def _fetch_blob(job: Job, name: str, size: int, sha256: str, commit: str, bar: Any) -> None:
    from huggingface_hub import hf_hub_url
    from huggingface_hub.utils import WeakFileLock

    partial = _partial(job, sha256)
    blob = partial.with_suffix("")
    lock = job.storage.parent / ".locks" / job.storage.name / f"{sha256}.lock"  # shared with huggingface_hub
    for folder in (blob.parent, lock.parent):
        folder.mkdir(parents=True, exist_ok=True)
    with WeakFileLock(lock):
        if not blob.exists():
            _resume(hf_hub_url(job.hub_id.name, name, revision=commit), partial, size, bar)
            _check_sha256(job, name, partial, sha256)
            partial.replace(blob)


def _resume(url: str, partial: Path, size: int, bar: Any) -> None:
    from huggingface_hub.file_download import http_get  # pyright: ignore[reportUnknownVariableType]
    from huggingface_hub.utils import build_hf_headers  # pyright: ignore[reportUnknownVariableType]

    n_done = partial.stat().st_size if partial.is_file() else 0
    with partial.open("ab" if n_done <= size else "wb") as target:
        words: Any = {"resume_size": target.tell(), "headers": build_hf_headers()}
        http_get(url, target, expected_size=size, tqdm_class=bar, **words)


def _check_sha256(job: Job, name: str, path: Path, want: str) -> None:
    """Raises FetchError and deletes the file if its checksum is wrong.

    huggingface_hub compares sizes only.
    """
    with path.open("rb") as file:
        got = hashlib.file_digest(file, "sha256").hexdigest()
    if got != want:
        path.unlink()
        text = f": {name} arrived damaged and was deleted: its sha256 is {got}, expected {want}"
        fail(job.hub_id, "corrupt", f"{text}; try again, and if it persists, suspect a proxy")


def _note_commit(job: Job, commit: str) -> None:
    """Stores the commit of a branch or tag in the cache, for offline use."""
    ref = job.storage / "refs" / job.revision
    if job.revision != commit:
        with suppress(OSError):  # the ref is optional: a read-only cache is usable without it
            ref.parent.mkdir(parents=True, exist_ok=True)
            ref.write_text(commit, "utf-8")


def _from_cache(job: Job) -> Fetched | None:
    """The cached model, None if files are missing. Raises the errors of `choose_files`."""
    from huggingface_hub import snapshot_download  # pyright: ignore[reportUnknownVariableType]
    from huggingface_hub.errors import LocalEntryNotFoundError

    words: Any = {"revision": job.revision, "cache_dir": job.storage.parent, "local_files_only": True}
    look = cast("Callable[..., str]", snapshot_download)
    try:  # no pattern: files of the repository outside the model are not required
        folder = Path(look(job.hub_id.name, allow_patterns=[], **words))
    except LocalEntryNotFoundError:
        return None
    listing = [path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()]
    try:
        chosen = _choose(job, listing, f"the cached part of {job.place}")
    except UnsupportedModelError:
        if job.is_adapter:  # its settings may be cached without its weights
            return None
        raise
    if MODULES in chosen.names:
        chosen = _with_modules(chosen, folder)
    if not set(chosen.names) <= set(listing):
        return None
    for note in chosen.notes:
        job.say(note)
    return job.fetched(chosen, folder.name)


def _not_cached(job: Job) -> NoReturn:
    text = f" is not complete in the cache {job.storage.parent}; --offline and HF_HUB_OFFLINE"
    fail(job.hub_id, "offline", f"{text} forbid a download: fetch it once without them")


def _without_network(job: Job, error: FetchError) -> Fetched:
    """Returns the cached model if the hub is unreachable; raises the error otherwise."""
    try:
        found = _from_cache(job) if error.facts["reason"] == "network" else None
    except CamelidError:  # the cache has another quant
        found = None
    if not found:
        raise error
    job.say(f"{error.message}; using commit {found.commit[:12]}, fetched earlier")
    return found
