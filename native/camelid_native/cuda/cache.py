"""Images of modules on disk, so that a kernel is compiled once per machine.

An entry is a file: the SHA-256 of the image, then the image. Its name is the hash of everything that the
image depends on. A folder that cannot be written costs one line in the log, and each start compiles.
"""

from __future__ import annotations

import hashlib
import logging
import os
import threading
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from camelid.backends.proof.verdicts import cache_folder
from camelid_native.cuda.compiler import Compiler, Module

LOG = logging.getLogger("camelid.cuda")
MOST_BYTES = 256 << 20
DIGEST = hashlib.sha256().digest_size


class VersionedCompiler(Compiler, Protocol):
    """A compiler whose `name` includes its version, with its options."""

    @property
    def options(self) -> tuple[str, ...]: ...


class CachedCompiler:
    """A compiler that keeps its images in a folder of at most `most_bytes`; the oldest entries go."""

    def __init__(
        self, inner: VersionedCompiler, folder: Path | None = None, most_bytes: int = MOST_BYTES
    ) -> None:
        self._inner, self._folder, self._most_bytes = inner, folder, most_bytes
        self._is_told = False
        self.name = inner.name

    def image(self, module: Module, arch: str) -> bytes:
        """The kept image, or a new one. Raises BackendError with the compiler's log."""
        path = self._path(module, arch)
        kept = _read(path) if path else None
        if kept is not None:
            return kept
        image = self._inner.image(module, arch)
        if path:
            self._keep(path, image)
        return image

    def _path(self, module: Module, arch: str) -> Path | None:
        """The file of an image; None if there is no folder for it."""
        key = "\0".join((self._inner.name, arch, *self._inner.options, module.text))
        try:
            folder = self._folder or cache_folder() / "cuda"
        except RuntimeError as error:  # the user has no home directory
            return self._tell(error)
        return folder / f"{module.file}-{hashlib.sha256(key.encode()).hexdigest()[:32]}.bin"

    def _keep(self, path: Path, image: bytes) -> None:
        """Writes an entry; another process sees all of it or nothing."""
        temporary = path.with_name(f"{path.name}.{os.getpid()}.{threading.get_ident()}.tmp")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            try:
                temporary.write_bytes(hashlib.sha256(image).digest() + image)
                temporary.replace(path)
            except OSError:
                temporary.unlink(missing_ok=True)
                raise
            self._bound(path)
        except OSError as error:
            self._tell(error)

    def _bound(self, newest: Path) -> None:
        """Removes the entries that were used longest ago, until the rest and the newest fit."""
        entries = [(stat.st_mtime_ns, stat.st_size, each) for each, stat in _listed(newest.parent)]
        total = sum(size for _, size, _ in entries)
        for _, size, each in sorted(entries):
            if total <= self._most_bytes:
                return
            if each != newest:
                each.unlink(missing_ok=True)
                total -= size

    def _tell(self, error: Exception) -> None:
        if not self._is_told:
            self._is_told = True
            LOG.warning("compiled kernels cannot be kept, so each start compiles them: %s", error)


def _read(path: Path) -> bytes | None:
    """The image of an entry, which counts as used now; None if it is absent or damaged."""
    try:
        entry = path.read_bytes()
    except OSError:
        return None
    if hashlib.sha256(entry[DIGEST:]).digest() != entry[:DIGEST]:
        return None
    with suppress(OSError):  # a folder that cannot be written
        os.utime(path)
    return entry[DIGEST:]


def _listed(folder: Path) -> list[tuple[Path, os.stat_result]]:
    """The files of a folder; another process may remove some meanwhile."""
    found: list[tuple[Path, os.stat_result]] = []
    for each in folder.iterdir():
        with suppress(FileNotFoundError):
            found.append((each, each.stat()))
    return found
