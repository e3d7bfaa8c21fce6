"""SQLite's errors as one `LearningError` each, with what was kept and the way out."""

from __future__ import annotations

import sqlite3
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from camelid.errors import LearningError

# SQLite's primary result code -> reason, and what to do.
REASONS = {
    "SQLITE_FULL": ("full", "the disk is full; free some space and give the feedback again"),
    "SQLITE_CORRUPT": ("damaged", "the file is damaged; restore a copy, or move it away to begin anew"),
    "SQLITE_NOTADB": ("damaged", "the file is no learning store; move it away to begin anew"),
    "SQLITE_BUSY": ("busy", "another process holds the file; end it or try again"),
    "SQLITE_LOCKED": ("busy", "another process holds the file; end it or try again"),
    "SQLITE_READONLY": ("refused", "the file cannot be written; check its permissions"),
    "SQLITE_CANTOPEN": ("refused", "the file cannot be opened; check its folder and its permissions"),
    "SQLITE_IOERR": ("disk", "the disk failed or a limit on file sizes was reached; free some space"),
}
OTHER = ("failed", "the file cannot be used; restore a copy, or move it away to begin anew")


@contextmanager
def clear_errors(path: Path) -> Generator[None]:
    """Raises LearningError in place of SQLite's errors and of those of the file system."""
    try:
        yield
    except sqlite3.Error as error:
        reason, way_out = REASONS.get(primary_code(error), OTHER)
        raise LearningError(f"{path}: {error}: {way_out}", path=str(path), reason=reason) from error
    except UnicodeDecodeError as error:  # a message of SQLite with names from a damaged page
        raise damaged(path, "the schema cannot be read") from error
    except OSError as error:
        raise LearningError(
            f"{path}: {error.strerror}: the store cannot be opened; check its folder", path=str(path),
            reason="refused",
        ) from error  # fmt: skip


@contextmanager
def whole_rows(path: Path) -> Generator[None]:
    """Raises LearningError for rows whose values are not what the store writes."""
    try:
        yield
    except (TypeError, ValueError, KeyError, AttributeError) as error:
        raise damaged(path, f"a row cannot be read ({error})") from error


def primary_code(error: sqlite3.Error) -> str:
    """The primary result code: SQLITE_IOERR for SQLITE_IOERR_WRITE."""
    name: str = getattr(error, "sqlite_errorname", "") or ""
    return "_".join(name.split("_")[:2])


def damaged(path: Path, what: str) -> LearningError:
    """The error of a store whose contents disagree."""
    return LearningError(f"{path}: {what}: {REASONS['SQLITE_CORRUPT'][1]}", path=str(path), reason="damaged")
