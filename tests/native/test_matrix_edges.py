"""Products at the end of a matrix's rows: bytes after a panel's last column have no effect."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tests.native.test_matrix import linear
from tests.support.native.kernels import VARIANTS, run_op

from camelid.backends.common.op_runner import OpCase, Quantized

INFINITY = {"f32": ("<u4", 0x7F800000), "f16": ("<u2", 0x7C00), "bf16": ("<u2", 0x7F80)}


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("type_name", INFINITY)
@pytest.mark.parametrize("cols", [1, 33, 67])
def test_the_next_panel_has_no_effect(cols: int, type_name: str, variant: str) -> None:
    """The next panel begins with infinities; bf16 is read in pairs of columns, and the last pair may be half
    outside.
    """
    clean = linear(type_name, 3, 32, cols)
    got, want = (run_op(case, variant, 1)["y"] for case in (spoiled(clean), clean))
    np.testing.assert_array_equal(got[:, :16], want[:, :16])
    assert not np.isfinite(got[:, 16:]).any()


def spoiled(case: OpCase) -> OpCase:
    """The case with infinities in column 0 of the second panel."""
    weight = case.weights["weight"]
    word, infinity = INFINITY[weight.type]
    matrix = np.frombuffer(weight.raw, word).reshape(weight.shape).copy()
    matrix[16:, 0] = infinity
    return replace(case, weights={"weight": Quantized(weight.type, weight.shape, matrix.tobytes())})
