"""Cases of norms, activations and all other elementwise ops."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from tests.support.parity.case_tools import array, empty, f32, vector

from camelid.backends.common.op_runner import OpCase
from camelid.backends.reference.basic import ACTS, GATES, NORMS

EPS = {"eps": 1e-5}
HUGE = (0.0, -0.0, 1e-20, 1e-3, -0.2, 0.3, 19.0, -21.0, 88.0, -90.0, 1e4, -1e4, 1e15, -1e15)


def norm_cases() -> Iterator[OpCase]:
    for rows, cols in ((1, 8), (3, 256), (2, 1000)):
        views = {"y": empty(rows, cols), "x": array(2, rows, cols), "r": array(3, rows, cols)}
        gain = {"gain": vector(4, cols)}
        yield OpCase(op="norm", views={r: views[r] for r in "yx"}, weights=gain, attrs=EPS)
        yield OpCase(op="add_norm", views=views, weights=gain, attrs=EPS)
        yield OpCase(op="add_norm", views=views, weights=gain, attrs={**EPS, "scale": 0.22})
        yield OpCase(op="add", views={"x": views["x"], "r": views["r"]})
        yield OpCase(op="add", views={"x": views["x"], "r": views["r"]}, attrs={"scale": -1.5})
    zeros = {"y": empty(2, 64), "x": empty(2, 64)}
    for kind in NORMS:
        how = {**EPS, "kind": kind}
        broken = {"y": empty(1, 4), "x": _broken()}
        yield OpCase(op="norm", views=broken, attrs=how)
        yield OpCase(op="norm", views=zeros, weights={"gain": vector(4, 64)}, attrs=how)
        for cols, size in ((100, 0), (96, 32), (7, 1), (6, 3)):
            views = {"y": empty(3, cols), "x": array(24, 3, cols) + np.float32(3.0)}
            weights = {"gain": vector(25, size or cols), "bias": vector(26, size or cols)}
            for names in ((), ("gain",), ("bias",), ("gain", "bias")):
                some = {name: weights[name] for name in names}
                yield OpCase(op="norm", views=views, weights=some, attrs={**how, "size": size})
        several = {"gain": f32(array(57, 3, 32)), "bias": vector(26, 32)}  # a gain per group
        views = {"y": empty(2, 96), "x": array(24, 2, 96)}
        yield OpCase(op="norm", views=views, weights=several, attrs={**how, "size": 32})
    tiny = {"y": empty(1, 64), "x": array(27, 1, 64, scale=1e-4)}  # eps exceeds the mean square
    yield OpCase(op="norm", views=tiny, attrs={"eps": 0.1, "kind": "l2"})


def scaling_cases() -> Iterator[OpCase]:
    yield from temperature_cases()
    for rows, cols in ((1, 1), (3, 77), (2, 256)):
        x = array(28, rows, cols, scale=40.0)
        yield OpCase(op="scale", views={"x": x}, attrs={"by": -0.37})
        yield OpCase(op="softcap", views={"x": x}, attrs={"cap": 30.0})
        yield OpCase(op="clamp", views={"x": x}, attrs={"limit": 30.0})
    yield OpCase(op="softcap", views={"x": _huge()}, attrs={"cap": 0.5})
    yield OpCase(op="clamp", views={"x": _broken()}, attrs={"limit": 2.0})
    for cols, factors in ((64, 64), (64, 1), (96, 3), (15, 5)):
        case = OpCase(op="mul", views={"x": array(29, 2, cols), "r": array(30, 2, factors)})
        yield case
        yield replace(case, joined=("r", "x"))


def xielu_cases() -> Iterator[OpCase]:
    for numbers in ((0.8, 1.1, 0.5, -1e-6), (1.3, 0.4, -0.25, -0.3)):
        alpha = {"alpha": f32(np.array(numbers))}
        for x in (array(33, 3, 100, scale=3.0), array(34, 1, 65, scale=0.01), _broken()):
            yield OpCase(op="xielu", views={"x": x}, weights=alpha)


def temperature_cases() -> Iterator[OpCase]:
    x = array(35, 4, 96)
    for by, length in ((0.1, 16), (-0.5, 1000)):
        attrs = {"by": by, "length": length}
        yield OpCase(op="temperature", views={"x": x}, positions=[14, 15, 31, 999], attrs=attrs)


def act_cases() -> Iterator[OpCase]:
    yield from xielu_cases()
    for act in ACTS:
        yield OpCase(op="unary", views={"x": array(31, 3, 100, scale=3.0)}, attrs={"act": act})
        yield OpCase(op="unary", views={"x": array(32, 1, 65, scale=0.01)}, attrs={"act": act})
        if act != "relu2":  # its squares overflow float32
            yield OpCase(op="unary", views={"x": _huge()}, attrs={"act": act})
        yield OpCase(op="unary", views={"x": _broken()}, attrs={"act": act})
    yield OpCase(op="softcap", views={"x": _broken()}, attrs={"cap": 30.0})
    yield OpCase(op="glu", views={"y": empty(1, 4), "gate": _broken(), "up": _broken()[:, ::-1].copy()},
                 attrs={"act": "swiglu_oai"})  # fmt: skip
    for act in (*ACTS, *GATES):
        views = {"y": empty(3, 100), "gate": array(16, 3, 100, scale=4.0), "up": array(17, 3, 100)}
        case = OpCase(op="glu", views={**views, "up": 6.0 * views["up"]}, attrs={"act": act})
        yield case
        if act == "silu":
            yield replace(case, joined=("up", "gate"))
    wide = {"y": empty(1, len(HUGE)), "gate": _huge(), "up": _huge()[:, ::-1].copy()}
    yield OpCase(op="glu", views=wide, attrs={"act": "swiglu_oai"})


def _huge() -> np.ndarray:
    """Values whose exp overflows or vanishes."""
    return np.array([HUGE], np.float32)


def _broken() -> np.ndarray:
    """NaN inputs: the output must stay NaN, so that the row's status reports it."""
    return np.array([[1.0, np.nan, -2.0, 0.5]], np.float32)
