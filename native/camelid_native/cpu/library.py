"""Finds and loads the compiled kernels; `camelid_native.build` compiles them.

The library is $CAMELID_NATIVE_DIR/<target>/<library> if the variable is set, else lib/<target>/<library> of
this package. If the package is imported from a zip, the library is copied to a cache folder named by the
library's SHA-256.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import shlex
import tempfile
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path

from camelid.backends.proof.verdicts import cache_folder
from camelid.errors import BackendError
from camelid_native.build.targets import LIB, SANITIZED, SOURCES, digest, read_facts, this_target
from camelid_native.cpu.records import ABI

OVERRIDE = "CAMELID_NATIVE_DIR"
BUILD = "python -m camelid_native.build"
NOT_BUILT = (
    "the CPU backend was not built: install a C compiler, or pip install ziglang, then run "
    f"`{BUILD}`; the reference backend works without it"
)


def load() -> ctypes.CDLL:
    """Loads this machine's library.

    Raises BackendError if the library is missing, cannot be loaded, was built from other sources (if its
    build.json states so), or has another ABI version.
    """
    path = find()
    if path is None:
        raise _error(_not_found())
    _check_sources(path, path.stat().st_mtime_ns)
    try:
        library = ctypes.CDLL(str(path))
        abi = int(library.cam_abi())
    except (OSError, AttributeError) as error:
        raise _error(
            f"{path} cannot be loaded as Camelid's CPU library ({error}); {_rebuild_command(path)}"
        ) from error
    if abi != ABI:
        raise _error(f"{path} has ABI version {abi}, expected {ABI}; {_rebuild_command(path)}")
    return library


def find() -> Path | None:
    """Path of this machine's library; None if there is no library.

    Raises BackendError if a zipped library cannot be copied to the cache.
    """
    folder = _libraries_folder() / this_target().name
    library = folder / this_target().system.library
    if not library.is_file():
        return None
    return library if isinstance(library, Path) else _extract(library)


def _libraries_folder() -> Traversable:
    override = os.environ.get(OVERRIDE)
    return Path(override) if override else files("camelid_native") / "lib"


def _not_found() -> str:
    override = os.environ.get(OVERRIDE)
    return (
        f"{OVERRIDE}={override} has no {this_target().path}; unset it, or {_rebuild_command()}"
        if override
        else NOT_BUILT
    )


def _extract(zipped: Traversable) -> Path:
    """Path of the library's copy in the cache; writes the copy if it is missing or differs."""
    data = zipped.read_bytes()
    folder = cache_folder() / "native" / hashlib.sha256(data).hexdigest()
    path = folder / zipped.name
    try:
        if not path.is_file() or path.read_bytes() != data:
            _write(path, data)
    except OSError as error:
        hint = "set a writable cache folder: CAMELID_CACHE=DIR"
        raise _error(f"the CPU backend's library cannot be unpacked to {folder} ({error}); {hint}") from error
    return path


def _write(path: Path, data: bytes) -> None:
    """Writes a file atomically by rename, since another process may write the same file."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=".new-") as folder:
        new = Path(folder, path.name)
        new.write_bytes(data)
        new.replace(path)


@cache
def _check_sources(path: Path, mtime_ns: int) -> None:  # noqa: ARG001 - part of the cache key
    """Raises BackendError if the library's build.json records other sources than this package's.

    A library without a readable build.json passes, and so does any library if the package has no sources.
    Cached by modification time: each file version is hashed once.
    """
    facts = read_facts(path, path.parent)
    if facts and SOURCES.is_dir() and facts.sources != digest(this_target()):
        raise _error(f"{path} was built from other sources than this checkout's; {_rebuild_command(path)}")


def _rebuild_command(path: Path | None = None) -> str:
    """Instruction to rebuild the library in its folder."""
    folder = path.parents[1] if path else Path(os.environ.get(OVERRIDE, ""))
    options = {LIB: "", **{libraries: f" --sanitize {kind}" for kind, libraries in SANITIZED.items()}}
    return f"run `{BUILD}{options.get(folder, f' --out {shlex.quote(str(folder))}')}`"


def _error(message: str) -> BackendError:
    return BackendError(message, backend="cpu")
