"""Every op in a real browser against the reference. The page holds web/executor.js and nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.parity.cases import OP_CASES, case_id
from tests.parity.compare import TOLERANCE, errors, reference_result, run_on

from camelid.backends.base import OpenSpec
from camelid.backends.single import OpCase, OpResult
from camelid.backends.webgpu.backend import WebGpuBackend
from e2e.browser import open_browser, serve_site
from e2e.page_host import PageHost, write_bare_site

pytestmark = [pytest.mark.parity, pytest.mark.slow]


async def run_in_chromium(address: str, cases: Sequence[OpCase]) -> list[OpResult]:
    async with open_browser() as browser:
        page = await browser.new_page()
        await page.goto(f"{address}bare.html")
        backend = WebGpuBackend(PageHost(page))
        results = await run_on(backend, OpenSpec(adapter="swiftshader"), list(cases))
        assert "swiftshader" in backend.capabilities().device.lower()
        return results


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> list[OpResult]:
    site: Path = tmp_path_factory.mktemp("bare")
    write_bare_site(site)
    with serve_site(site) as address:
        return asyncio.run(run_in_chromium(address, OP_CASES))


@pytest.mark.parametrize("i", range(len(OP_CASES)), ids=[case_id(case) for case in OP_CASES])
def test_op_matches_reference_in_chromium(i: int, results: list[OpResult]) -> None:
    assert max(errors(results[i], reference_result(OP_CASES[i]))) <= TOLERANCE
