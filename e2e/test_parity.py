"""Every op in a real browser against the reference backend, in a page with web/executor.js only.

Ordinary runs hold one case for each op, weight type and shader, exhaustive runs the others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.support.parity.case_numbers import numbers, requested
from tests.support.parity.cases import OP_CASES, sample_of_shaders
from tests.support.parity.compare import TOLERANCE, errors, reference_result, run_on
from tests.support.parity.rounded import q8_cases, q8_result

from camelid.backends.base import OpenSpec
from camelid.backends.common.op_runner import OpCase, OpResult
from camelid.backends.webgpu.backend import WebGpuBackend
from e2e.browser import open_browser, serve_site
from e2e.page_host import PageHost, write_bare_site

pytestmark = [pytest.mark.parity, pytest.mark.slow]


async def run_in_chromium(address: str, cases: Sequence[OpCase], activations: str = "f32") -> list[OpResult]:
    async with open_browser() as browser:
        page = await browser.new_page()
        await page.goto(f"{address}bare.html")
        backend = WebGpuBackend(PageHost(page))
        spec = OpenSpec(adapter="swiftshader", activations=activations)
        computed = await run_on(backend, spec, list(cases))
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


def test_rounded_activations_match_the_reference_in_chromium(tmp_path: Path) -> None:
    """One case of each weight type: integer dot products of another compiler."""
    cases = list({case.weights["weight"].type: case for case in q8_cases()}.values())
    write_bare_site(tmp_path)
    with serve_site(tmp_path) as address:
        computed = asyncio.run(run_in_chromium(address, cases, "q8"))
    for case, result in zip(cases, computed, strict=True):
        assert max(errors(result, q8_result(case))) <= TOLERANCE, case


@pytest.mark.parametrize("i", numbers(sample_of_shaders(OP_CASES)))
def test_op_matches_reference_in_chromium(i: int, results: dict[int, OpResult]) -> None:
    assert max(errors(results[i], reference_result(OP_CASES[i]))) <= TOLERANCE
