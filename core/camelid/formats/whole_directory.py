"""A directory that appears under its name only when complete."""

from __future__ import annotations

import secrets
import shutil
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from camelid.errors import CamelidError
from camelid.formats.source import format_error


@contextmanager
def whole_directory(target: Path) -> Generator[Path]:
    """A temporary directory beside `target`: it becomes `target` if the block succeeds, else it is deleted.

    `target` may be an empty directory. Raises ModelFormatError if it cannot be written.
    """
    part = target.parent / f".{secrets.token_hex(8)}.part"
    try:
        part.mkdir()
    except OSError as error:
        raise unwritable(target, error) from error
    try:
        yield part
        _rename(part, target)
    except BaseException:
        shutil.rmtree(part, ignore_errors=True)
        raise


def _rename(part: Path, target: Path) -> None:
    try:
        if target.is_dir():
            target.rmdir()  # Windows renames to no existing directory, even an empty one
        part.rename(target)
    except OSError as error:
        raise unwritable(target, error) from error


def unwritable(path: Path, error: OSError) -> CamelidError:
    """The error of a directory or file that cannot be written."""
    reason = error.strerror or type(error).__name__
    return format_error(str(path), f"cannot be written: {reason}; nothing was left of it")
