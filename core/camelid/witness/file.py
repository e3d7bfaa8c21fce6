"""The open file of a log: exclusive, readable by its owner only, and appended to in durable batches."""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path

from camelid.errors import WitnessError
from camelid.witness.tail import Tail, read_tail

try:
    import fcntl
except ModuleNotFoundError:  # Windows
    fcntl = None

MODE = 0o600
FLAGS = os.O_RDWR | os.O_APPEND | os.O_CREAT | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)


class LogFile:
    """A log that one process appends to. What a failed append left is cut off.

    `tail` is the end as found on opening. Raises WitnessError for a file that cannot be opened, is no log, is
    damaged at its end, or is written by another process.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._fd = _open(path)
        try:
            self._size = _checked_size(self._fd, path)
            self.is_new = not self._size
            with os.fdopen(os.dup(self._fd), "rb") as file:
                self.tail: Tail = read_tail(file, self._size, str(path))
        except BaseException:
            os.close(self._fd)
            raise

    @property
    def is_moved(self) -> bool:
        """True if the path no longer leads to this file, as after a rotation."""
        try:
            there = self.path.stat()
        except OSError:
            return True
        here = os.fstat(self._fd)
        return (there.st_dev, there.st_ino) != (here.st_dev, here.st_ino)

    @property
    def is_deleted(self) -> bool:
        """True if no name leads to this file, so that what is written would be lost on closing."""
        return os.fstat(self._fd).st_nlink == 0

    def append(self, data: bytes) -> None:
        """Appends bytes and waits until the disk has them. Raises OSError, and the file is as before."""
        # After a failed fsync the kernel may drop pages that it reports as written by the next one, so the
        # bytes are cut off and written again. The cut itself may have failed, so it comes first here.
        self._cut()
        try:
            self._write(data)
            os.fsync(self._fd)
        except OSError:
            self._cut_if_possible()
            raise
        self._size += len(data)

    def _write(self, data: bytes) -> None:
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(self._fd, rest) :]

    def _cut(self) -> None:
        """Removes the bytes that a failed append left."""
        if os.fstat(self._fd).st_size > self._size:
            os.ftruncate(self._fd, self._size)

    def _cut_if_possible(self) -> None:
        with suppress(OSError):  # the next append cuts first, and fails while it cannot
            self._cut()

    def close(self) -> None:
        """Closes the file and gives up its lock."""
        os.close(self._fd)


def _open(path: Path) -> int:
    try:
        fd = os.open(path, FLAGS, MODE)
    except OSError as error:
        raise WitnessError(
            f"{path}: the witness log cannot be opened: {error.strerror}; choose a file that this user may "
            "write",
            path=str(path),
        ) from error
    _sync_folder(path.parent)
    return fd


def _sync_folder(folder: Path) -> None:
    """Makes the file's name durable; a system without open folders does so by itself."""
    try:
        fd = os.open(folder, os.O_RDONLY)
    except OSError:
        return
    try:
        os.fsync(fd)
    except OSError:
        pass  # some network file systems refuse to sync a folder
    finally:
        os.close(fd)


def _checked_size(fd: int, path: Path) -> int:
    """The size of a regular file that no other process writes."""
    status = os.fstat(fd)
    if not stat.S_ISREG(status.st_mode):
        raise WitnessError(
            f"{path}: not a regular file, so a log on it cannot be continued; choose a path on a disk",
            path=str(path),
        )
    if fcntl:
        _lock(fd, path)
        os.fchmod(fd, MODE)
    return os.fstat(fd).st_size  # after the lock, so that another writer's last bytes count


def _lock(fd: int, path: Path) -> None:
    assert fcntl
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise WitnessError(
            f"{path}: another process writes this witness log; give each server a log of its own",
            path=str(path),
        ) from error
    except OSError:
        return  # a file system without locks
