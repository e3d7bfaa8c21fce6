"""Op cases for activations "q8": products with packed weights, and their results from rounded x."""

from __future__ import annotations

import asyncio
from functools import cache

import numpy as np
from tests.support.parity.case_tools import array, empty, weight
from tests.support.parity.cases import OP_CASES
from tests.support.parity.compare import reference_result
from tests.support.parity.sections import PaperHost

from camelid.backends.base import Capabilities, OpenSpec
from camelid.backends.common.op_runner import OpCase, OpResult
from camelid.backends.proof.compare import rounds_activations
from camelid.backends.proof.gate import inputs_of
from camelid.backends.webgpu.backend import WebGpuBackend
from camelid.backends.webgpu.layouts import PACKED


@cache
def q8_capabilities() -> Capabilities:
    """Capabilities of webgpu with activations "q8"."""
    backend = WebGpuBackend(PaperHost())
    asyncio.run(backend.open(OpenSpec(activations="q8")))
    return backend.capabilities()


def is_rounded(case: OpCase) -> bool:
    """True for a product whose weights all multiply rounded activations."""
    values = case.weights.get("v_weight")
    return rounds_activations(case, q8_capabilities()) and (values is None or values.type in PACKED)


def long_cases() -> list[OpCase]:
    """Rows of more columns than a slice of matvec_q8.wgsl, for one token row and for several; and a tile."""
    ways = (
        ("q4_0", 1, 4608), ("q4_k", 5, 1024), ("q6_k", 8, 1280), ("q8_0", 2, 2176), ("nvfp4", 1, 4224),
        ("iq2_xs", 5, 1024), ("iq4_nl", 12, 224),
    )  # fmt: skip
    return [
        OpCase(
            op="linear",
            views={"y": empty(rows, 10), "x": array(201, rows, n_in)},
            weights={"weight": weight(type_, 202, 10, n_in)},
        )
        for type_, rows, n_in in ways
    ]


def q8_cases() -> list[OpCase]:
    """Inputs away from the ties of codes, on which the last bit of a division decides."""
    cases = [*OP_CASES, *long_cases()]
    return [inputs_of(case, q8_capabilities())[0] for case in cases if is_rounded(case)]


def reference_case(case: OpCase) -> OpCase:
    """The case with x rounded to blocks of 32 codes with the scale max|x| / 127."""
    tested, expected = inputs_of(case, q8_capabilities())
    assert all(np.array_equal(tested.views[role], x) for role, x in case.views.items())
    return expected


def q8_result(case: OpCase) -> OpResult:
    return reference_result(reference_case(case))
