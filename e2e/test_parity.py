"""Every op in a real browser against the reference backend, in a page with web/executor.js only.

Ordinary runs hold one case for each op, weight type and shader, exhaustive runs the others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.support.parity.case_numbers import numbers, requested
from tests.support.parity.cases import OP_CASES, one_of_each_kind, shaders_of
from tests.support.parity.compare import TOLERANCE, errors, reference_result, run_on

from camelid.backends.base import OpenSpec
from camelid.backends.common.op_runner import OpCase, OpResult
from camelid.backends.webgpu.backend import WebGpuBackend
from e2e.browser import open_browser, serve_site
from e2e.page_host import PageHost, write_bare_site

pytestmark = [pytest.mark.parity, pytest.mark.slow]


async def run_in_chromium(address: str, cases: Sequence[OpCase]) -> list[OpResult]:
    async with open_browser() as browser:
        page = await browser.new_page()
        await page.goto(f"{address}bare.html")
        backend = WebGpuBackend(PageHost(page))
        computed = await run_on(backend, OpenSpec(adapter="swiftshader"), list(cases))
        assert "swiftshader" in backend.capabilities().device.lower()
        return computed


@pytest.fixture(scope="module")
def results(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[int, OpResult]:
    """Results of the selected cases, computed in one page."""
    site: Path = tmp_path_factory.mktemp("bare")
    write_bare_site(site)
    chosen = requested(request)
    with serve_site(site) as address:
        computed = asyncio.run(run_in_chromium(address, [OP_CASES[i] for i in chosen]))
    return dict(zip(chosen, computed, strict=True))


@pytest.mark.parametrize("i", numbers(one_of_each_kind(OP_CASES, shaders_of)))
def test_op_matches_reference_in_chromium(i: int, results: dict[int, OpResult]) -> None:
    assert max(errors(results[i], reference_result(OP_CASES[i]))) <= TOLERANCE
