"""Every op of the webgpu backend against the reference: on lavapipe, also as on a GPU, and on SwiftShader.

Ordinary runs test the cases of `sample_of_kernels` with the kernels that a GPU gets, exhaustive runs others;
those of software adapters are also in `e2e/test_parity.py`.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.support.exhaustive import share_of
from tests.support.parity.adapters import need_driver
from tests.support.parity.case_numbers import numbers, requested
from tests.support.parity.cases import OP_CASES, sample_of_kernels
from tests.support.parity.compare import TOLERANCE, errors, reference_result, run_on

from camelid.backends.base import OpenSpec
from camelid.backends.common.op_runner import OpResult
from camelid.backends.webgpu.backend import open_backend
from camelid.backends.webgpu.kernel import GPU_LANES, SOFTWARE_LANES
from camelid.backends.webgpu.kernels import KERNELS
from camelid.backends.webgpu.limits import DEFAULTS
from camelid.plan.ops import OPS

pytestmark = pytest.mark.parity

# Ops of the reference alone: webgpu refuses them by name.
REFERENCE_ONLY = {"all_reduce", "linear_experts_glu", "linear_experts_sum"}

# Adapter, and lanes per weight row; in ordinary runs the first.
WAYS = {
    "llvmpipe as a GPU": ("llvmpipe", GPU_LANES),
    "llvmpipe": ("llvmpipe", SOFTWARE_LANES),
    "SwiftShader": ("SwiftShader", SOFTWARE_LANES),
}


@pytest.fixture(scope="module", params=share_of(WAYS))
def results(request: Any) -> dict[int, OpResult]:
    """The result of each case in this run."""
    driver, lanes = WAYS[request.param]
    chosen, backend = requested(request), open_backend("Vulkan")
    is_software = lanes == SOFTWARE_LANES  # with WebGPU's default limits; a GPU has ten bindings
    spec = OpenSpec(adapter=need_driver(driver), default_limits=is_software)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("camelid.backends.webgpu.backend.SOFTWARE_LANES", lanes)
        results = asyncio.run(run_on(backend, spec, [OP_CASES[i] for i in chosen]))
    assert driver in backend.capabilities().device
    n_bindings = "maxStorageBuffersPerShaderStage"
    assert is_software == (backend.capabilities().limits[n_bindings] == DEFAULTS[n_bindings])
    return dict(zip(chosen, results, strict=True))


@pytest.mark.parametrize("i", numbers(sample_of_kernels(OP_CASES)))
def test_op_matches_reference(i: int, results: dict[int, OpResult]) -> None:
    assert max(errors(results[i], reference_result(OP_CASES[i]))) <= TOLERANCE


def test_every_op_has_a_kernel_and_a_case() -> None:
    covered: set[str] = {case.op for case in OP_CASES} | {"tables", "candidates"}  # covered by other cases
    assert set(KERNELS) == set(OPS) - REFERENCE_ONLY == covered
