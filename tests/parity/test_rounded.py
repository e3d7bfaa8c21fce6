"""Activations "q8" of webgpu: the reference with x rounded likewise, promise A, NaN, a whole model."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.parity.test_batch import alone, case_of
from tests.parity.test_ops import WAYS
from tests.support.exhaustive import exhaustive, share_of
from tests.support.parity.adapters import need_driver
from tests.support.parity.cases import one_of_each_kind
from tests.support.parity.compare import TOLERANCE, errors, run_on
from tests.support.parity.rounded import long_cases, q8_capabilities, q8_cases, q8_result
from tests.support.parity.sections import PaperHost

import camelid
from camelid.backends.base import OpenSpec
from camelid.backends.common.op_runner import OpCase, OpResult
from camelid.backends.proof.gate import Outcome, first_failure
from camelid.backends.webgpu.backend import open_backend
from camelid.backends.webgpu.kernel import GPU_LANES, SOFTWARE_LANES
from camelid.backends.webgpu.layouts import PACKED
from camelid.errors import BackendError, RequestError

pytestmark = pytest.mark.parity

CASES = q8_cases()


def run_q8(driver: str, lanes: int, cases: list[OpCase]) -> list[OpResult]:
    is_software = lanes == SOFTWARE_LANES
    spec = OpenSpec(adapter=need_driver(driver), activations="q8", default_limits=is_software)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("camelid.backends.webgpu.backend.SOFTWARE_LANES", lanes)
        return asyncio.run(run_on(open_backend("Vulkan"), spec, cases))


def sample() -> list[OpCase]:
    """The largest case of each op, and all long ones; `e2e/test_parity.py` has one of each weight type."""
    return [*one_of_each_kind(CASES, lambda case: case.op), *CASES[-len(long_cases()) :]]


@pytest.mark.parametrize(
    ("way", "is_whole"), [("llvmpipe as a GPU", False), *(exhaustive((way, True)) for way in WAYS)]
)
def test_products_match_the_reference_with_rounded_activations(way: str, is_whole: bool) -> None:
    cases = CASES if is_whole else sample()
    for case, result in zip(cases, run_q8(*WAYS[way], cases), strict=True):
        assert max(errors(result, q8_result(case))) <= TOLERANCE, case


def test_every_packed_type_and_product_has_a_case() -> None:
    assert {case.weights["weight"].type for case in CASES} == PACKED
    assert {case.op for case in CASES} == {
        "linear", "linear_glu", "linear_heads", "linear_experts", "linear_add", "linear_add_norm",
        "norm_linear", "norm_linear_glu", "qkv", "norm_qkv",
    }  # fmt: skip


def test_rounded_activations_differ_from_float_ones() -> None:
    """Without this, a backend that ignores the option would pass with cases whose x has 8-bit values."""
    case = next(case for case in CASES if case.op == "linear" and case.weights["weight"].type == "q4_0")
    spec = OpenSpec(adapter=need_driver("llvmpipe"))
    (exact,) = asyncio.run(run_on(open_backend("Vulkan"), spec, [case]))
    assert 1e-6 < max(errors(exact, q8_result(case))) < 1e-3


@pytest.mark.parametrize("lanes", share_of([GPU_LANES, SOFTWARE_LANES]))
@pytest.mark.parametrize("type_", share_of(["q8_0", "q4_k", "q4_0", "iq2_xs", "iq4_nl", "nvfp4"]))
@pytest.mark.parametrize("op", ["norm_linear_glu", "linear_add_norm"])
def test_a_batch_changes_no_bit_of_a_row(op: str, type_: str, lanes: int) -> None:
    case = case_of(op, type_, 1024)
    ways = [alone(case, row, spare) for spare in (0, 2, 10) for row in (0, 7, 10)]
    together, *each = (np.hstack(list(r.views.values())) for r in run_q8("llvmpipe", lanes, [case, *ways]))
    for got, row in zip(each, (0, 7, 10) * 3, strict=True):
        assert np.array_equal(got[0], together[row])


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_an_input_that_is_not_finite_reaches_every_output_of_its_row(bad: float) -> None:
    linears = [case for case in CASES if case.op == "linear"]
    tiled = next(case for case in linears if len(case.views["x"]) > 8)
    few = next(case for case in linears if 2 < len(case.views["x"]) <= 8)
    for case in (tiled, few):
        x = case.views["x"].copy()
        x[2, 40] = bad
        (got,) = run_q8("llvmpipe", GPU_LANES, [replace(case, views={**case.views, "x": x})])
        others = np.delete(got.views["y"], 2, axis=0)
        assert np.isnan(got.views["y"][2]).all() and np.isfinite(others).all()


@pytest.mark.exhaustive
def test_logits_of_cria_are_near_those_of_the_processor() -> None:
    """The processor rounds alike, and sums in another order."""
    ids = list(range(40, 90))

    def logits(**how: Any) -> Any:
        with camelid.load("cria", context=64, parallel=1, **how) as llm:
            return np.asarray(llm.logits(ids), np.float64)

    gpu = {"backend": "webgpu", "adapter": need_driver("llvmpipe")}
    want, got, exact = logits(backend="cpu"), logits(**gpu, activations="q8"), logits(**gpu)
    error = [((a - want) ** 2).sum() / (want**2).sum() for a in (got, exact)]
    assert error[0] < error[1] < 1e-3


def test_the_short_gate_passes() -> None:
    """The gate rounds the reference's inputs for the types that this backend rounds, and for no other."""

    async def failure() -> Outcome | None:
        backend = open_backend("Vulkan")
        await backend.open(OpenSpec(adapter=need_driver("llvmpipe"), activations="q8"))
        found = await first_failure(backend)
        await backend.close()
        return found

    assert asyncio.run(failure()) is None


@pytest.mark.parametrize(("backend", "activations"), [("reference", "q8"), ("cpu", "f32")])
def test_a_backend_without_the_activations_refuses_them(backend: str, activations: str) -> None:
    with pytest.raises(RequestError, match=f"backend '{backend}' has .* only; omit the option"):
        camelid.load("cria", backend=backend, activations=activations)


def test_unknown_activations_are_refused() -> None:
    with pytest.raises(RequestError, match="activations are 'q4', expected f32 or q8"):
        camelid.load("cria", activations="q4")


def test_a_browser_without_integer_dot_products_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    from camelid.backends.webgpu.backend import WebGpuBackend

    async def opened(self: PaperHost, spec: Any) -> Any:
        return {"adapter": {"device": "paper"}, "limits": {}, "language": []}

    monkeypatch.setattr(PaperHost, "open", opened)
    with pytest.raises(BackendError, match="needs packed_4x8_integer_dot_product of WGSL"):
        asyncio.run(WebGpuBackend(PaperHost()).open(OpenSpec(activations="q8")))
    assert q8_capabilities().activations == "q8"
