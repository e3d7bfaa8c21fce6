"""Model files on two machines: each has its own, and both must hold the same bytes."""

# pyright: reportUnknownVariableType=false, reportUnknownMemberType=false, reportUnknownArgumentType=false
# (JSON values have no types.)

from __future__ import annotations

import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache, partial
from hashlib import blake2b
from os import PathLike
from pathlib import Path
from typing import Any

from camelid.backends.base import Sources
from camelid.backends.remote.frames import damaged
from camelid.errors import BackendError, ModelFormatError

BLOCK_BYTES = 1 << 26  # a thread's share
N_THREADS = min(os.cpu_count() or 1, 8)


def digest(path: Path) -> str:
    """A checksum of a whole file: BLAKE2b of the BLAKE2b of its blocks, which threads read side by side.

    The checksum of a file that has not changed is kept, since every stage asks for it. A core hashes about
    1 GB a second, so a checksum takes no longer than a read from most disks.
    """
    stat = path.stat()
    return _digest(path, stat.st_size, stat.st_mtime_ns, stat.st_ino)


@lru_cache(maxsize=64)
def _digest(path: Path, size: int, mtime_ns: int, inode: int) -> str:  # noqa: ARG001 - parts of the key
    with ThreadPoolExecutor(N_THREADS) as pool:
        blocks = pool.map(partial(_block_digest, path), range(0, max(size, 1), BLOCK_BYTES))
        return blake2b(b"".join(blocks), digest_size=16).hexdigest()


def _block_digest(path: Path, offset: int) -> bytes:
    sums, rest = blake2b(digest_size=32), BLOCK_BYTES
    with path.open("rb") as file:
        file.seek(offset)
        while rest and (data := file.read(min(rest, 1 << 20))):
            sums.update(data)
            rest -= len(data)
    return sums.digest()


def described(sources: Sources) -> dict[str, Any]:
    """The paths and checksums of sources. Raises BackendError for a source that is no file."""
    found: dict[str, Any] = {}
    for name, handle in sources.items():
        if not isinstance(handle, str | PathLike):
            raise BackendError(
                f"{name}: a stage on another machine reads files only, this is a {type(handle).__name__}",
                backend="remote",
            )
        path = Path(handle).absolute()
        found[name] = {"path": str(path), "digest": digest(path)}
    return found


def checked(table: Any) -> Mapping[str, str]:
    """The paths of described sources on this machine.

    Raises ModelFormatError for a file that is absent, or differs from the engine's.
    """
    if not isinstance(table, Mapping):
        raise damaged("it describes no sources")
    return {str(name): _checked(Path(str(each["path"])), str(each["digest"])) for name, each in table.items()}


def _checked(path: Path, wanted: str) -> str:
    try:
        got = digest(path)
    except OSError as error:
        raise ModelFormatError(
            f"{path}: {error.strerror} on the stage's machine; every machine needs the model at this path",
            path=str(path),
        ) from error
    if got != wanted:
        raise ModelFormatError(
            f"{path}: the stage's file differs from the engine's (checksum {got}, expected {wanted}); copy "
            "the same file to every machine",
            path=str(path),
        )
    return str(path)
