"""Memory that kernels work in: whole pages, zeroed, aligned, in huge pages where the system gives them."""

from __future__ import annotations

import ctypes
import mmap

from camelid.errors import OutOfMemoryError

HUGE_FROM = 4 << 20  # bytes; smaller blocks would waste most of a huge page


class Memory:
    """`n_bytes` zero bytes at `at`. Freed with the last reference."""

    def __init__(self, n_bytes: int) -> None:
        self.n_bytes = n_bytes
        try:
            self._pages = mmap.mmap(-1, max(n_bytes, mmap.PAGESIZE))
        except (OSError, OverflowError, ValueError) as error:
            raise OutOfMemoryError(
                f"{n_bytes:,} bytes of memory cannot be had; use a smaller model or context",
                want_bytes=n_bytes,
            ) from error
        if n_bytes >= HUGE_FROM and hasattr(mmap, "MADV_HUGEPAGE"):
            self._pages.madvise(mmap.MADV_HUGEPAGE)
        self.at: int = ctypes.addressof(ctypes.c_char.from_buffer(self._pages))

    def read(self, offset: int, n_bytes: int) -> bytes:
        return self._pages[offset : offset + n_bytes]

    def write(self, offset: int, data: bytes) -> None:
        self._pages[offset : offset + len(data)] = data
