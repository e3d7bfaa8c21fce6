"""Queries and keys by a weight of one type and values by one of another, in one launch for few rows."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from tests.cuda.rates import model_of
from tests.cuda.rig import open_rig
from tests.cuda.test_launches import MOST_BESIDE
from tests.support.parity.case_tools import vector
from tests.support.parity.cases import QkvWay, qkv_case
from tests.support.parity.compare import TOLERANCE, errors, reference_result, run_on

from camelid.backends.base import OpenSpec
from camelid.backends.common.op_runner import OpCase, OpResult
from camelid.backends.proof.gate import inputs_of
from camelid.engine.programs import DECODE, MIXED
from camelid.loading.deployment import Deployment
from camelid.loading.options import LoadOptions
from camelid_native.cuda.kernel import Context
from camelid_native.cuda.lower import used_kernels

pytestmark = pytest.mark.parity

ONE: QkvWay = ("qkv", "norm", 32, 0, "f16", 64, [15])
FEW: QkvWay = ("norm_qkv", "neox", 16, 12, "f16", 32, [3, 30, 31, 32, 33])  # with biases
BLOCKS: QkvWay = ("norm_qkv", "neox", 32, 0, "q8_0", 64, [5, 6, 7])
PAIRS = (("q4_k", "q6_k"), ("q8_0", "q4_0"), ("iq2_xxs", "q5_k"))
HALVES = 64  # rows of a capacity with a launch for each weight


def cases() -> list[OpCase]:
    """Every pair in both kernels, the one with columns and the one with heads, norms and a tail."""
    plain = [qkv_case(way, *pair, 256) for pair, way in zip(PAIRS, (ONE, FEW, BLOCKS), strict=True)]
    gains = {"q_gain": vector(91, 32), "k_gain": vector(92, 32)}
    whole = qkv_case(FEW, *PAIRS[0], 256)
    weights = {role: w for role, w in whole.weights.items() if "bias" not in role}
    heads = replace(whole, weights={**weights, **gains}, attrs={**whole.attrs, "head_eps": 1e-3})
    tail = qkv_case(BLOCKS, *PAIRS[0], 256)
    return [*plain, heads, replace(tail, has_tail=True)]


def results(found: list[OpCase]) -> list[OpResult]:
    return asyncio.run(run_on(open_rig(), OpenSpec(), found))


@pytest.mark.parametrize("wave", ["32", "64"])
def test_one_launch_has_the_bits_of_two(wave: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EMU_WAVE", wave)
    together = [inputs_of(case, open_rig().capabilities())[0] for case in cases()]
    apart = [replace(case, spare=HALVES) for case in together]
    for case, one, two in zip(cases(), results(together), results(apart), strict=True):
        expected = reference_result(inputs_of(case, open_rig().capabilities())[1])
        assert max(errors(one, expected)) <= TOLERANCE
        n = len(one.views["y"])
        assert np.array_equal(one.views["y"], two.views["y"][:n])
        assert all(one.state[name].tobytes() == two.state[name].tobytes() for name in one.state)


def test_a_layer_of_a_mixed_file_has_six_launches() -> None:
    """In steps that generate: Q6_K values in half of the layers."""
    model = model_of("q4_k_m")
    deployment = Deployment.of(model, LoadOptions(kv_type="f16"), open_rig().capabilities())
    decode, mixed = (launches(deployment, program) for program in (DECODE, MIXED))
    n = len(model.spec.layers)
    assert decode.total() <= 6 * n + MOST_BESIDE
    assert 0 < decode["qkv_mixed"] < n == decode["qkv_mixed"] + decode["qkv"]
    assert mixed["qkv_mixed"] == 0 < n < mixed["qkv"]


def launches(deployment: Deployment, program: str) -> Counter[str]:
    context = Context(deployment.plan(program), deployment.kv_cache().sizes())
    return Counter(kernel.function for _, used in used_kernels(context) for kernel in used)
