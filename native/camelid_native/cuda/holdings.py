"""Memory and graphs of a device that are freed together, also where their construction fails."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

from camelid.errors import BackendError
from camelid_native.cuda.device import Device


class Holdings:
    """An owner of device memory (`n_bytes`), pinned memory and graphs."""

    def __init__(self, device: Device) -> None:
        self._device, self._held = device, ExitStack()
        self.n_bytes = self._n_held = 0

    def allocate(self, n_bytes: int) -> int:
        """The address of new memory on the device."""
        at = self._device.allocate(n_bytes)
        self._keep(self._device.free, at)
        self.n_bytes += n_bytes
        return at

    def pinned(self, n_bytes: int) -> tuple[int, memoryview[int]]:
        """Address and bytes of new pinned memory."""
        at, held = self._device.pinned(n_bytes)
        self._keep(self._device.free_pinned, at)
        return at, held

    def capture(self, work: Callable[[], None]) -> Any:
        """A graph of everything that `work` enqueues."""
        graph = self._device.capture(work)
        self._keep(self._device.drop, graph)
        return graph

    @contextmanager
    def building(self) -> Generator[None]:
        """Frees everything if the block fails."""
        try:
            yield
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Frees everything, the newest first, after what is enqueued; a lost device has nothing to free."""
        if not self._n_held:
            return
        with suppress(BackendError):
            self._device.wait(self._device.mark())
        self._held.close()
        self.n_bytes = self._n_held = 0

    def _keep(self, free: Callable[[Any], None], held: Any) -> None:
        self._held.callback(_freed, free, held)
        self._n_held += 1


def _freed(free: Callable[[Any], None], held: Any) -> None:
    with suppress(BackendError):
        free(held)
