"""A row has the same bits alone, among eight and in a tile, whatever rows are beside it (promise A)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.metal.on_rig import result
from tests.support.exhaustive import share_of

from camelid.backends.common.op_runner import OpCase
from camelid.backends.proof.inputs import normal, row
from camelid.backends.proof.rows_matrix import chosen
from camelid.backends.proof.rows_state import attention

pytestmark = pytest.mark.parity

ROWS, N_IN, N_OUT = 45, 512, 14  # more than a tile, the last tile in part
FEW = 8
OPS: Mapping[str, dict[str, Any]] = {
    "linear": {"bias": (N_OUT,)},
    "linear_glu": {"act": "silu"},
    "linear_add": {"scale": 0.3},
    "norm_linear": {"eps": 1e-5},
    "norm_linear_glu": {"act": "gelu", "eps": 1e-5},
}
ATTENTIONS: Mapping[str, dict[str, Any]] = {
    "all keys": {"first_kept": 33},
    "a window": {"window": 150, "sinks": (4,)},
    "a bias": {"bias": (80, 4), "softcap": 2.0},
    "held keys": {"mask": "held"},
    "blocks": {"kv_type": "q4_0"},
    "two tiers": {"kv_type": "q8_0", "has_tail": True},
}


def case_of(op: str, weight_type: str) -> OpCase:
    parts = 2 if op.endswith("glu") else 1
    x = normal("values", ROWS, N_IN)
    if "eps" in OPS[op]:
        x = np.hstack([x, normal("squares", ROWS, N_IN // 4) ** 2])
    weight = (weight_type, parts * N_OUT, N_IN)
    return row(op, y=(ROWS, N_OUT), x=x, weight=weight, **OPS[op]).made().case


def part(case: OpCase, start: int, n: int, spare: int = 0) -> OpCase:
    """Rows of a case, in a program with capacity for `spare` more."""
    views = {role: a[start : start + n] for role, a in case.views.items()}
    return replace(case, views=views, spare=spare)


def bits(case: OpCase) -> Any:
    return result(case).views["y"].view(np.uint32)


@pytest.mark.parametrize("weight_type", share_of(("q6_k", "f16", "iq2_s", "mxfp4")))
@pytest.mark.parametrize("op", OPS)
def test_company_changes_no_bit_of_a_row(op: str, weight_type: str) -> None:
    case = case_of(op, weight_type)
    together = bits(case)
    assert np.array_equal(bits(part(case, 5, FEW)), together[5 : 5 + FEW])
    assert np.array_equal(bits(part(case, 5, 3, spare=FEW - 3)), together[5:8])
    assert np.array_equal(bits(part(case, 3, 33)), together[3:36])
    for at in (0, 7, 40, ROWS - 1):
        assert np.array_equal(bits(part(case, at, 1)), together[at : at + 1])
        assert np.array_equal(bits(part(case, at, 1, spare=20)), together[at : at + 1])


@pytest.mark.parametrize(
    "way", share_of(dict.fromkeys(("a window", "held keys", "two tiers", *ATTENTIONS)), 3)
)
def test_attention_of_a_row_has_the_bits_of_its_splits(way: str) -> None:
    """Few rows have a threadgroup per split, many rows one for all splits."""
    positions = [297, 298, 511, 512, 699]
    case = attention(positions, 4, 2, 32, 80, **ATTENTIONS[way]).made().case
    few, many = bits(case), bits(replace(case, spare=FEW))
    assert np.array_equal(few, many)
    for at in (0, 3, 4):
        alone = replace(part(case, at, 1), positions=positions[at : at + 1])
        if way != "held keys":  # what is held before the step depends on its first row
            assert np.array_equal(bits(alone), few[at : at + 1])


@pytest.mark.parametrize("op", ["linear_experts", "linear_experts_glu", "linear_experts_sum"])
def test_experts_of_a_row_have_its_bits(op: str) -> None:
    """Few rows read experts one by one, many rows are sorted by expert."""
    n, n_experts, n_used = 40, 5, 3
    weight = ("q6_k", n_experts, 14, 256)
    more: dict[str, Any] = {"bias": (n_experts, 14)}
    more |= {"up_weight": weight, "up_bias": (n_experts, 14), "act": "silu"} if op.endswith("glu") else {}
    more |= {"probs": (n, n_used)} if op.endswith("sum") else {}
    cols = 14 if op.endswith("sum") else 14 * n_used
    ids = chosen(n, n_experts, n_used)
    case = row(op, y=(n, cols), x=(n, 256), ids=ids, weight=weight, **more).made().case
    together = bits(case)
    assert np.array_equal(bits(part(case, 9, FEW)), together[9 : 9 + FEW])
    for at in (0, 17, 39):
        assert np.array_equal(bits(part(case, at, 1)), together[at : at + 1])


@pytest.mark.parametrize("way", ["a window", "two tiers"])
def test_attention_of_rows_together_has_their_bits(way: str) -> None:
    """Many rows share loads of keys: of one sequence, on both sides of a border of tiers, and of two."""
    positions = list(range(310, 342))
    case = attention(positions, 4, 2, 32, 80, **ATTENTIONS[way], lengths=(21, 11)).made().case
    together = bits(case)
    for at in (0, 8, 9, 10, 20, 21, 31):
        alone = replace(part(case, at, 1), positions=positions[at : at + 1], lengths=(1,))
        assert np.array_equal(bits(alone), together[at : at + 1]), at
