"""One fetch, and the cache that it fills: the standard one of `huggingface_hub`.

Other tools find what was fetched here, and the reverse. Layout: blobs/<etag> holds content,
snapshots/<commit>/ links to it under the repository's names, refs/<branch> holds a commit.
Source: https://huggingface.co/docs/huggingface_hub/guides/manage-cache
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeAlias

from camelid.formats.hub.ids import Choice, HubId, choose_files

Progress: TypeAlias = Callable[[str, int, int], object]  # what is being done, bytes so far, of how many
Say: TypeAlias = Callable[[str], object]
COMMIT = re.compile(r"[0-9a-f]{40}")


@dataclass(frozen=True, slots=True)
class Job:
    """One fetch: what, where from, where to, and whom to tell."""

    hub_id: HubId
    endpoint: str
    cache: Path
    progress: Progress
    say: Say

    @property
    def revision(self) -> str:
        """A branch, tag or commit."""
        return self.hub_id.revision or "main"

    @property
    def place(self) -> str:
        """The repository, as messages name it."""
        return str(replace(self.hub_id, quant=None))

    @property
    def page(self) -> str:
        """The repository's page."""
        return f"{self.endpoint}/{self.hub_id.name}"

    @property
    def storage(self) -> Path:
        """The repository's folder in the cache."""
        return self.cache / f"models--{self.hub_id.owner}--{self.hub_id.repo}"

    def snapshot(self, commit: str) -> Path:
        """The folder of one commit's files."""
        return self.storage / "snapshots" / commit


@dataclass(frozen=True, slots=True)
class Fetched:
    """A model on this disk. `path` is a .gguf file (of parts the first), or a directory of safetensors."""

    hub_id: HubId
    path: Path
    files: tuple[Path, ...]
    commit: str

    @property
    def n_bytes(self) -> int:
        """Bytes of its files."""
        return sum(file.stat().st_size for file in self.files)


def fetched(job: Job, choice: Choice, commit: str) -> Fetched:
    """The chosen files where the cache has them."""
    folder = job.snapshot(commit)
    files = tuple(folder / name for name in choice.files)
    return Fetched(job.hub_id, files[0] if choice.is_gguf else folder, files, commit)


def has_whole(job: Job, path: Path, size: int | None) -> bool:
    """Whether the cache has a file whole. One of another size was cut short by something: it is removed.

    A link out of the repository's folder goes, but not the file that it leads to, which is somebody's own.
    """
    if not path.is_file():
        return False
    if size is None or path.stat().st_size == size:
        return True
    content = path.resolve()
    path.unlink()
    if content.is_relative_to(job.storage.resolve()):
        content.unlink(missing_ok=True)
    return False


def note_commit(job: Job, commit: str) -> None:
    """Remembers which commit a branch or tag was, for times without a network."""
    ref = job.storage / "refs" / job.revision
    if job.revision == commit:
        return
    with suppress(OSError):  # a cache on a read-only disk serves all the same
        if not ref.is_file() or ref.read_text("utf-8") != commit:
            ref.parent.mkdir(parents=True, exist_ok=True)
            temporary = ref.with_name(f"{ref.name}.{os.getpid()}.tmp")
            temporary.write_text(commit, "utf-8")
            temporary.replace(ref)


def noted_commit(job: Job) -> str:
    """The commit that the revision was when last fetched; empty if it never was."""
    if COMMIT.fullmatch(job.revision):
        return job.revision
    ref = job.storage / "refs" / job.revision
    commit = ref.read_bytes().decode("ascii", "replace").strip() if ref.is_file() else ""
    return commit if COMMIT.fullmatch(commit) else ""


def from_cache(job: Job) -> Fetched | None:
    """What was fetched earlier; None if that is nothing, or not all files. Raises as `choose_files`."""
    commit = noted_commit(job)
    folder = job.snapshot(commit)
    if not commit or not folder.is_dir():
        return None
    listing = [path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()]
    choice = choose_files(listing, job.hub_id.quant, place=f"what the cache has of {job.place}")
    needed = {*choice.files, *(shard for name in choice.files for shard in shards(folder / name))}
    if not all((folder / name).is_file() for name in needed):
        return None
    if choice.note:
        job.say(choice.note)
    return fetched(job, choice, commit)


def shards(path: Path) -> Collection[str]:
    """The files that an index of shards names; none for any other file."""
    if not path.name.endswith(".safetensors.index.json"):
        return ()
    try:
        return {str(name) for name in json.loads(path.read_bytes())["weight_map"].values()}
    except (ValueError, KeyError, TypeError, AttributeError):
        return ()  # whoever reads the directory will say what is wrong with it
