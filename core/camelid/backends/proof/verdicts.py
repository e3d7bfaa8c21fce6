"""What the short gate said of a device, kept so that `auto` asks once per build, device and driver."""

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
PASSING = (DeviceLostError, OutOfMemoryError)  # say something of the moment, nothing of the kernels


class Failure(Protocol):
    """A case that failed; its text says how. `error` is what was raised, if anything was."""

    @property
    def error(self) -> Exception | None: ...


async def verdict(backend: Backend, open_another: Opener) -> str:
    """Why `auto` must not take this backend; "" if its short gate passed, now or the last time.

    The gate runs on another of the same kind, so that none of its weights stay. In a browser it is not run:
    there is no NumPy to compare with.
    """
    if sys.platform == "emscripten":
        return ""
    can = backend.capabilities()
    known = stored(can)
    if known is not None:
        return known
    try:
        another = await open_another()
    except BackendError as error:
        return f"its gate cannot be run: {error.message}"
    try:
        failure = await import_module("camelid.backends.proof.gate").first_failure(another)
    finally:
        await another.close()
    return keep(can, failure)


def keep(can: Capabilities, failure: Failure | None) -> str:
    """The verdict that a failure of the short gate means, or none; stored, unless it may pass by itself."""
    reason = f"it fails its gate (camelid doctor shows more): {failure}" if failure else ""
    if not (failure and isinstance(failure.error, PASSING)):
        store(can, reason)
    return reason


def cache_folder() -> Path:
    """$CAMELID_CACHE, else `camelid` in the user's cache."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(os.environ.get("CAMELID_CACHE") or Path(home, "camelid"))


def stored(can: Capabilities) -> str | None:
    """What was stored of this build, device and driver; None if that is nothing, or cannot be read."""
    try:
        found: Any = json.loads(_path(can).read_bytes())
        is_ours = found["key"] == _key(can) and isinstance(found["reason"], str)
    except (OSError, ValueError, KeyError, TypeError, RuntimeError):  # absent or damaged: it is made anew
        return None
    return found["reason"] if is_ours else None


def store(can: Capabilities, reason: str) -> None:
    """Keeps the verdict, if the cache can be written; else the gate just runs again."""
    with suppress(OSError, RuntimeError):  # RuntimeError: there is no home
        path = _path(can)
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
        temporary.write_text(json.dumps({"key": _key(can), "reason": reason}), "utf-8")
        temporary.replace(path)


def _key(can: Capabilities) -> dict[str, str]:
    """`device` holds the driver's version, too."""
    return {"version": __version__, "backend": can.name, "device": can.device, "build": can.build}


def _path(can: Capabilities) -> Path:
    text = json.dumps(_key(can), sort_keys=True)
    return cache_folder() / "gate" / f"{hashlib.sha256(text.encode()).hexdigest()[:16]}.json"
