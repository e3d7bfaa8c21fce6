"""Memory that kernels work in: whole pages, zeroed, aligned, in huge pages where the system gives them."""

from __future__ import annotations

import ctypes
import mmap
from contextlib import suppress

from camelid.errors import OutOfMemoryError

HUGE_FROM = 4 << 20  # bytes; smaller blocks would waste most of a huge page
CHUNK = 32 << 20  # bytes that an arena takes from the system at once
LARGE = CHUNK // 2  # bytes of a block that has memory of its own: in a chunk it would waste the rest
LINE = 64  # bytes of a cache line
# Not shared with a child of fork(), as mmap would have it; and only private pages become huge ones. Windows
# has neither the flags nor fork().
PRIVATE = {"flags": mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS} if hasattr(mmap, "MAP_PRIVATE") else {}


class Memory:
    """`n_bytes` zero bytes at `at`. Freed with the last reference."""

    def __init__(self, n_bytes: int) -> None:
        self.n_bytes = n_bytes
        try:
            self._pages = mmap.mmap(-1, max(n_bytes, mmap.PAGESIZE), **PRIVATE)
        except (OSError, OverflowError, ValueError) as error:
            raise OutOfMemoryError(
                f"{n_bytes:,} bytes of memory cannot be had; use a smaller model or context",
                want_bytes=n_bytes,
            ) from error
        if n_bytes >= HUGE_FROM and hasattr(mmap, "MADV_HUGEPAGE"):
            with suppress(OSError):  # a kernel built without them
                self._pages.madvise(mmap.MADV_HUGEPAGE)
        self.at: int = ctypes.addressof(ctypes.c_char.from_buffer(self._pages))

    def read(self, offset: int, n_bytes: int) -> bytes:
        return self._pages[offset : offset + n_bytes]

    def write(self, offset: int, data: bytes) -> None:
        self._pages[offset : offset + len(data)] = data


class Arena:
    """Many blocks side by side in large ones, so that small blocks lie in huge pages, too."""

    def __init__(self) -> None:
        self._large: list[Memory] = []  # each of one block
        self._chunks: list[Memory] = []  # of many
        self._used = 0  # bytes of the last chunk
        self.n_bytes = 0  # of all blocks

    def block(self, n_bytes: int) -> int:
        """The address of so many zero bytes, at the start of a cache line. Freed with the arena."""
        room = in_lines(n_bytes)
        at = self._alone(room) if room >= LARGE else self._beside(room)
        self.n_bytes += room
        return at

    def _alone(self, room: int) -> int:
        self._large.append(Memory(room))
        return self._large[-1].at

    def _beside(self, room: int) -> int:
        if not self._chunks or self._used + room > CHUNK:
            self._chunks.append(Memory(CHUNK))
            self._used = 0
        at = self._chunks[-1].at + self._used
        self._used += room
        return at


def in_lines(n_bytes: int) -> int:
    """Bytes of a block: whole cache lines."""
    return -(-n_bytes // LINE) * LINE
