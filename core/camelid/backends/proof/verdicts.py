"""Verdicts of the short gate, cached so that `auto` runs it once per build, device and driver."""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol, TypeAlias

from camelid.backends.base import Backend, Capabilities
from camelid.errors import BackendError, DeviceLostError, OutOfMemoryError
from camelid.version import __version__

Opener: TypeAlias = Callable[[], Awaitable[Backend]]
PASSING = (DeviceLostError, OutOfMemoryError)  # temporary errors, no evidence against the kernels


class Failure(Protocol):
    """A failed case; its text is the failure. `error` is the raised exception, None if none was raised."""

    @property
    def error(self) -> Exception | None: ...


async def verdict(backend: Backend, open_another: Opener) -> str:
    """The reason why `auto` must not use this backend; "" if its short gate passes or has passed before.

    The gate runs on a second backend of the same kind, so that none of its weights stay loaded. It does not
    run in a browser, which has no NumPy for the reference.
    """
    if sys.platform == "emscripten":
        return ""
    can = backend.capabilities()
    cached = stored(can)
    if cached is not None:
        return cached
    try:
        another = await open_another()
    except BackendError as error:
        return f"its gate cannot run: {error.message}"
    try:
        failure = await import_module("camelid.backends.proof.gate").first_failure(another)
    finally:
        await another.close()
    return keep(can, failure)


def keep(can: Capabilities, failure: Failure | None) -> str:
    """The verdict of a failure of the short gate, "" without a failure.

    Stores it, unless the error is temporary.
    """
    reason = f"it fails its gate (camelid doctor shows more): {failure}" if failure else ""
    if not (failure and isinstance(failure.error, PASSING)):
        store(can, reason)
    return reason


def cache_folder() -> Path:
    """$CAMELID_CACHE, else `camelid` in the user's cache."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(os.environ.get("CAMELID_CACHE") or Path(home, "camelid"))


def stored(can: Capabilities) -> str | None:
    """The stored verdict of this build, device and driver; None if absent or unreadable."""
    try:
        found: Any = json.loads(_path(can).read_bytes())
        is_ours = found["key"] == _key(can) and isinstance(found["reason"], str)
    except (OSError, ValueError, KeyError, TypeError, RuntimeError):  # absent or damaged: the gate runs again
        return None
    return found["reason"] if is_ours else None


def store(can: Capabilities, reason: str) -> None:
    """Stores a verdict if the cache is writable. Otherwise the gate runs again next time."""
    with suppress(OSError, RuntimeError):  # RuntimeError: the user has no home directory
        path = _path(can)
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
        temporary.write_text(json.dumps({"key": _key(can), "reason": reason}), "utf-8")
        temporary.replace(path)


def _key(can: Capabilities) -> dict[str, str]:
    """The key of a verdict. `device` includes the driver's version."""
    return {
        "version": __version__, "backend": can.name, "device": can.device, "build": can.build,
        "activations": can.activations,
    }  # fmt: skip


def _path(can: Capabilities) -> Path:
    text = json.dumps(_key(can), sort_keys=True)
    return cache_folder() / "gate" / f"{hashlib.sha256(text.encode()).hexdigest()[:16]}.json"
