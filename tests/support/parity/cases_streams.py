"""Cases of a matrix per head, concat, and linear combination, affine map, length and threshold."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from tests.support.parity.case_tools import array, empty, vector, weight

from camelid.backends.common.op_runner import OpCase

WIDTHS = (1, 5, 37, 130)
HEADS = ((3, 20, 32, 0), (4, 64, 96, 20), (2, 6, 64, 4), (5, 130, 256, 64))  # heads, out, in, unchanged


def stream_cases() -> Iterator[OpCase]:
    for cols in WIDTHS:
        x, several = array(1, 3, cols), array(2, 3, 4 * cols)
        weights = {"weight": vector(3, cols), "bias": vector(4, cols)}
        yield OpCase(op="affine", views={"y": empty(3, cols), "x": x}, weights=weights)
        yield OpCase(op="affine", views={"y": empty(3, cols), "x": x}, weights={"weight": vector(3, cols)})
        yield OpCase(op="affine", views={"y": empty(3, cols), "x": x}, weights={"weight": vector(4, 1)})
        yield OpCase(op="concat", views={"y": empty(3, 5 * cols), "a": several, "b": x})
        yield OpCase(op="length", views={"y": empty(3, 4), "x": several}, attrs={"size": cols})
        yield OpCase(op="length", views={"y": empty(3, 1), "x": x})
        yield OpCase(op="cutoff", views={"x": x + np.float32(2.0)}, attrs={"deviations": 0.7})
        mixed = {"y": empty(3, 2 * cols), "x": several, "coefs": array(5, 3, 8)}
        yield OpCase(op="mix", views=mixed, attrs={"size": cols})
    both = {"y": empty(3, 107), "a": several[:, :70], "b": array(9, 3, 37)}
    yield OpCase(op="concat", views=both, joined=("b", "a"))
    broken = array(6, 2, 70)
    broken[1, 40] = np.nan
    yield OpCase(op="cutoff", views={"x": broken}, attrs={"deviations": 0.7})


def heads_cases() -> Iterator[OpCase]:
    for type_ in ("f32", "f16", "bf16", "q8_0", "q4_0"):
        for (n, n_out, n_in, more), rows in zip(HEADS, (1, 9, 17, 3), strict=True):
            views = {"y": empty(rows, n * (n_out + more)), "x": array(7, rows, n * (n_in + more))}
            stack = {"weight": weight(type_, 8, n, n_out, n_in)}
            yield OpCase(op="linear_heads", views=views, weights=stack)
