"""Zeroed, page-aligned memory for kernels, in huge pages where the system provides them."""

from __future__ import annotations

import ctypes
import mmap
from contextlib import suppress

from camelid.errors import OutOfMemoryError

HUGE_FROM = 4 << 20  # bytes; smaller allocations would waste most of a huge page
CHUNK = 32 << 20  # bytes that an arena allocates from the system at once
LARGE = CHUNK // 2  # bytes; from this size an allocation bypasses the chunks, where it would waste space
LINE = 64  # bytes of a cache line
# MAP_PRIVATE, because mmap's default shares pages with a child of fork(), and only private pages become huge
# pages. Windows has neither the flags nor fork().
PRIVATE = {"flags": mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS} if hasattr(mmap, "MAP_PRIVATE") else {}


class Memory:
    """`n_bytes` zero bytes at address `at`, freed with the last reference.

    Raises OutOfMemoryError if the system refuses the allocation.
    """

    def __init__(self, n_bytes: int) -> None:
        self.n_bytes = n_bytes
        try:
            self._pages = mmap.mmap(-1, max(n_bytes, mmap.PAGESIZE), **PRIVATE)
        except (OSError, OverflowError, ValueError) as error:
            raise OutOfMemoryError(
                f"{n_bytes:,} bytes of memory cannot be allocated; use a smaller model or context length",
                want_bytes=n_bytes,
            ) from error
        if n_bytes >= HUGE_FROM and hasattr(mmap, "MADV_HUGEPAGE"):
            with suppress(OSError):  # an OS kernel without huge pages
                self._pages.madvise(mmap.MADV_HUGEPAGE)
        self.at: int = ctypes.addressof(ctypes.c_char.from_buffer(self._pages))

    def read(self, offset: int, n_bytes: int) -> bytes:
        return self._pages[offset : offset + n_bytes]

    def write(self, offset: int, data: bytes) -> None:
        self._pages[offset : offset + len(data)] = data


class Arena:
    """Allocator that places small allocations in large chunks, so that they lie in huge pages, too."""

    def __init__(self) -> None:
        self._large: list[Memory] = []  # one allocation each
        self._chunks: list[Memory] = []  # many allocations each
        self._used = 0  # bytes used in the last chunk
        self.n_bytes = 0  # sum of all allocations

    def block(self, n_bytes: int) -> int:
        """Allocates zeroed bytes at the start of a cache line. Returns the address; freed with the arena."""
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
    """Bytes rounded up to whole cache lines."""
    return -(-n_bytes // LINE) * LINE
