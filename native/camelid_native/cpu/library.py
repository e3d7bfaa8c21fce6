"""Finds the compiled kernels and loads them; `camelid_native.build` compiles them.

Places, in this order: $CAMELID_NATIVE_DIR, laid out as `build --out` fills it; `lib/` in this package.
Out of a zip the library is copied to a folder of the cache that is named by its hash.
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
    f"`{BUILD}`; the reference backend runs meanwhile"
)


def load() -> ctypes.CDLL:
    """The library of this machine, of this version's sources and records; else BackendError."""
    path = find()
    if path is None:
        raise _error(_not_found())
    _check_sources(path, path.stat().st_mtime_ns)
    try:
        library = ctypes.CDLL(str(path))
        abi = int(library.cam_abi())
    except (OSError, AttributeError) as error:
        raise _error(f"{path} is no library of Camelid's that loads here ({error}); {_mend(path)}") from error
    if abi != ABI:
        raise _error(f"{path} has records of version {abi}, this Camelid {ABI}; {_mend(path)}")
    return library


def find() -> Path | None:
    """Where the library is; None where there is none. BackendError if the cache cannot be written."""
    place = _places() / this_target().name
    library = place / this_target().system.library
    if not library.is_file():
        return None
    return library if isinstance(library, Path) else _extract(library)


def _places() -> Traversable:
    override = os.environ.get(OVERRIDE)
    return Path(override) if override else files("camelid_native") / "lib"


def _not_found() -> str:
    override = os.environ.get(OVERRIDE)
    return (
        f"{OVERRIDE}={override} has no {this_target().path}; unset it, or {_mend()}"
        if override
        else NOT_BUILT
    )


def _extract(packed: Traversable) -> Path:
    """The file in the cache with the same bytes, written there if need be."""
    data = packed.read_bytes()
    folder = cache_folder() / "native" / hashlib.sha256(data).hexdigest()
    path = folder / packed.name
    try:
        if not path.is_file() or path.read_bytes() != data:
            _write(path, data)
    except OSError as error:
        hint = "name a folder that can be written: CAMELID_CACHE=DIR"
        raise _error(f"the CPU backend's library cannot be unpacked to {folder} ({error}); {hint}") from error
    return path


def _write(path: Path, data: bytes) -> None:
    """Another process may do the same at the same time: each renames a file of its own."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=".new-") as folder:
        new = Path(folder, path.name)
        new.write_bytes(data)
        new.replace(path)


@cache
def _check_sources(path: Path, written_ns: int) -> None:  # noqa: ARG001 - a part of the cache's key
    """A library whose build.json names other sources than those of this package is refused. Looked at once:
    what a process has loaded stays as it is."""
    facts = read_facts(path, path.parent)
    if facts and SOURCES.is_dir() and facts.sources != digest(this_target()):
        raise _error(f"{path} is older than its sources, or newer; {_mend(path)}")


def _mend(path: Path | None = None) -> str:
    """The command that builds the library anew, where it is."""
    folder = path.parents[1] if path else Path(os.environ.get(OVERRIDE, ""))
    options = {LIB: "", **{place: f" --sanitize {watched}" for watched, place in SANITIZED.items()}}
    return f"run `{BUILD}{options.get(folder, f' --out {shlex.quote(str(folder))}')}`"


def _error(message: str) -> BackendError:
    return BackendError(message, backend="cpu")
