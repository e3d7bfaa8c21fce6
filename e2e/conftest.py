"""Patience of every page test: Playwright's own 5 seconds for `expect` are too few on a loaded machine."""

from __future__ import annotations

import pytest
from playwright.async_api import expect

from e2e.visit import STEP_MS


@pytest.fixture(scope="session", autouse=True)
def patience() -> None:
    """Gives expectations the time of a page's steps."""
    expect.set_options(timeout=STEP_MS)
