"""The kernels' tests use exactly the number of threads that they request."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from camelid_native.cpu.api import Library


@pytest.fixture(autouse=True)
def pool_without_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keeps the waiting host from computing: in short ops it arrives too late, so that a test requesting a
    thread per processor would have one fewer.
    """
    real = Library.start

    def start(self: Library, cpus: Sequence[int], *, with_host: bool = False) -> int:
        return real(self, cpus, with_host=with_host)

    monkeypatch.setattr(Library, "start", start)
