"""The state of a model's files on disk, to see whether they were replaced."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from camelid.loading.model_file import find_hub_id

Mark = tuple[tuple[str, int, int, int], ...]  # name, time of change in ns, size and inode of each file


def mark_of(file: str) -> Mark:
    """The mark of a file, of all parts of a model in several files, or of a folder.

    Empty for cria, a hub id, and a file that is absent: these do not change.
    """
    path = Path(file)
    if file == "cria" or find_hub_id(file):
        return ()
    files = [path]
    if path.is_dir():
        files = sorted(path.iterdir())
    elif "-of-" in path.name:
        files = sorted(path.parent.glob(f"{path.name.rpartition('-of-')[0][:-5]}*-of-*"))
    return tuple(mark for each in files for mark in _mark(each))


def _mark(path: Path) -> Mark:
    with suppress(OSError):
        found = path.stat()
        return ((path.name, found.st_mtime_ns, found.st_size, found.st_ino),)
    return ()
