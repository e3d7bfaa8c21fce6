"""The seam between the backend and a GPU's interface."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

Grid = tuple[int, int, int]
ALIGNMENT = 256  # bytes; of allocated memory


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """A device.

    `arch` is its compiler's name for it (sm_90, gfx942), `wave` the lanes that run together, and `clock_khz`
    the highest clock of its processors. `interface` is what calls the driver, where there is a choice.
    """

    name: str
    arch: str
    wave: int
    n_processors: int
    clock_khz: int
    memory_bytes: int
    driver: str
    interface: str = ""


class Device(Protocol):
    """One GPU with one stream. Copies and launches are enqueued; `wait` alone waits. An event of `mark` is
    freed by its `wait`.

    Addresses are integers. Every call raises OutOfMemoryError, DeviceLostError or BackendError with the
    driver's text.
    """

    def facts(self) -> Facts: ...
    def free_bytes(self) -> int: ...
    def module(self, image: bytes) -> Any: ...
    def kernel(self, module: Any, name: str) -> Any: ...
    def allocate(self, n_bytes: int) -> int: ...
    def free(self, at: int) -> None: ...
    def pinned(self, n_bytes: int) -> tuple[int, memoryview[int]]: ...
    def free_pinned(self, at: int) -> None: ...
    def copy(self, to: int, at: int, n_bytes: int) -> None: ...
    def fill(self, at: int, byte: int, n_bytes: int) -> None: ...
    def launch(self, kernel: Any, grid: Grid, threads: int, arguments: Sequence[bytes]) -> None: ...
    def capture(self, work: Callable[[], None]) -> Any: ...
    def replay(self, graph: Any) -> None: ...
    def drop(self, graph: Any) -> None: ...
    def mark(self) -> Any: ...
    def is_done(self, mark: Any) -> bool: ...
    def wait(self, mark: Any) -> None: ...
    def close(self) -> None: ...


def aligned(n_bytes: int) -> int:
    """The next multiple of the alignment."""
    return -(-n_bytes // ALIGNMENT) * ALIGNMENT
