"""The memory snapshot of the page's Python: its content, and the state that a restored page renews.

A snapshot is the interpreter's memory. It has no file system, and whatever was drawn at random is the same in
every page. So are the hashes of strings, which cannot change once a dictionary exists.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

# Modules that the standard library imports when a function first needs them. For a module that the snapshot
# lacks, a page fetches the standard library's archive.
LATER = ("importlib.readers", "importlib.resources.readers", "importlib.resources._adapters")
SEED = "PYTHONHASHSEED"

_files: dict[Path, bytes] = {}


def freeze(root: Path) -> None:
    """Imports every module below `root` and keeps the content of all other files in memory."""
    for name in (*sorted(_modules(root)), *LATER):
        import_module(name)
    _files.update(
        (path, path.read_bytes()) for path in root.rglob("*") if not _is_code(path) and path.is_file()
    )
    os.environ.pop(SEED, None)


def thaw() -> None:
    """Writes the kept files and draws a new seed for `random`."""
    for path, data in _files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    _files.clear()
    random.seed()


def _modules(root: Path) -> Iterator[str]:
    for path in filter(_is_code, root.rglob("*")):
        place = path.relative_to(root).with_suffix("")
        yield ".".join(place.parts[:-1] if place.name == "__init__" else place.parts)


def _is_code(path: Path) -> bool:
    return path.suffix in {".py", ".pyc"}
