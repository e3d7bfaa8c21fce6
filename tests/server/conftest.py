"""One server of cria for the tests of a module."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.support.served import Served, served


@pytest.fixture(scope="module")
def server() -> Iterator[Served]:
    with served("--backend", "cpu") as running:
        yield running
