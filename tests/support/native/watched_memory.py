"""A pytest plugin: each block of the CPU backend comes from malloc, so that AddressSanitizer sees its bounds.
It cannot see bounds within pages that the backend maps.
"""

from __future__ import annotations

import ctypes
import weakref
from functools import cache

from camelid_native.cpu import backend as cpu
from camelid_native.cpu import memory as cpu_memory
from camelid_native.cpu import states as cpu_states
from camelid_native.cpu.memory import LINE


@cache
def libc() -> ctypes.CDLL:
    """The process's symbols: AddressSanitizer's versions, since it is loaded first."""
    library = ctypes.CDLL(None)
    library.posix_memalign.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t)
    library.free.restype, library.free.argtypes = None, (ctypes.c_void_p,)
    return library


class WatchedMemory:
    """`Memory` of exact size: the byte after a block is poisoned."""

    def __init__(self, n_bytes: int) -> None:
        self.n_bytes = n_bytes
        place = ctypes.c_void_p()
        assert not libc().posix_memalign(ctypes.byref(place), LINE, n_bytes)
        self.at: int = ctypes.memset(place, 0, n_bytes)
        weakref.finalize(self, libc().free, self.at)

    def read(self, offset: int, n_bytes: int) -> bytes:
        return ctypes.string_at(self.at + offset, n_bytes)

    def write(self, offset: int, data: bytes) -> None:
        ctypes.memmove(self.at + offset, data, len(data))


def pytest_configure() -> None:
    for module in (cpu, cpu_memory, cpu_states):
        vars(module)["Memory"] = WatchedMemory
    cpu_memory.LARGE = 0  # each block of an arena is a separate allocation
