"""Kernels are tested on as many threads as a test asks for."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from camelid_native.cpu.api import Library


@pytest.fixture(autouse=True)
def threads_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who waits for one op alone comes too late to compute: where a test asks for as many threads as there
    are processors, it would have one fewer."""
    real = Library.start

    def start(self: Library, cpus: Sequence[int], *, with_host: bool = False) -> int:
        return real(self, cpus, with_host=with_host)

    monkeypatch.setattr(Library, "start", start)
