"""The place of a user's store: a folder of its own, readable by its owner only."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

from camelid.errors import RequestError, shown

NAME = "learning.db"
SPACE = re.compile(r"[a-z0-9][a-z0-9-]{0,63}")
BASE_DIGITS = 32


def data_folder() -> Path:
    """The user's data directory: $CAMELID_LEARNING, or `camelid/learning` where the system keeps data.

    https://specifications.freedesktop.org/basedir-spec/latest/ on Linux.
    """
    own = os.environ.get("CAMELID_LEARNING")
    return Path(own) if own else _system_folder() / "camelid" / "learning"


def _system_folder() -> Path:
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Application Support"
    return Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share")


def store_path(space: str, base: str, folder: Path | None = None) -> Path:
    """The file of a space and a base model's hash. Raises RequestError for a name that is no file name."""
    if not SPACE.fullmatch(space):
        raise RequestError(
            f"the learning space is {shown(space)}, expected small letters, digits and dashes", field="space"
        )
    return (folder or data_folder()) / space / base[:BASE_DIGITS] / NAME
