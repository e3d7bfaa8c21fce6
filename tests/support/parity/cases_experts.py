"""Cases of mixtures of experts: routers, linear maps by expert, and their weighted sum."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from tests.support.parity.case_tools import array, empty, f32, vector, weight

from camelid.backends.common.op_runner import OpCase

GATES = ("softmax", "sigmoid", "topk_softmax")


def expert_cases() -> Iterator[OpCase]:
    yield from router_cases()
    yield from near_cases()
    yield from linear_cases()
    for rows, n_used, cols in ((1, 1, 8), (3, 4, 100), (2, 8, 64)):
        views = {"y": empty(rows, cols), "x": array(40, rows, n_used * cols)}
        yield OpCase(op="combine", views={**views, "probs": array(41, rows, n_used)})


def router_cases() -> Iterator[OpCase]:
    for gate in GATES:
        for rows, n_experts, n_used in ((1, 4, 2), (5, 8, 8), (3, 130, 6), (2, 300, 64)):
            logits = array(42, rows, n_experts, scale=2.0)
            for normalize, scale in ((0, 1.0), (1, 2.5)):
                attrs = {"gate": gate, "normalize": normalize, "scale": scale}
                yield _router(logits, n_used, attrs)
        # A bias affects the choice of experts, not their probabilities.
        bias = {"bias": f32(np.repeat(np.array([0.0, 3.0, -3.0, 0.5]), 4))}
        yield _router(array(43, 4, 16), 5, {"gate": gate}, bias)
        gained = {"gate": gate, "normalize": 1, "scale": 2.5}
        yield _router(array(43, 4, 16), 5, gained, bias | {"gain": vector(47, 16)})
        for n_groups, n_groups_used in ((4, 2), (8, 3), (16, 7)):
            groups = {"gate": gate, "n_groups": n_groups, "n_groups_used": n_groups_used}
            grouped = array(45, 5, 16, scale=2.0)
            grouped[3:] = 0.0  # of equal groups and experts, the lowest ids win
            yield _router(grouped, 3, groups)
            yield _router(array(46, 4, 16), 3, groups, bias)
        tied = np.zeros((2, 70), np.float32)  # the lowest ids win
        tied[1, [3, 64, 69]] = 1.0
        yield _router(tied, 7, {"gate": gate})
        wide = array(44, 2, 16, scale=40.0)  # sigmoids and exponentials of it saturate in f32
        yield _router(wide, 4, {"gate": gate})


def near_cases() -> Iterator[OpCase]:
    """Experts near the best share its weight: some by less than 2 % of a positive and of a negative logit."""
    near = 2.0 + 0.015 * array(49, 6, 12)
    near[3:] *= -1.0
    for logits in (
        near,
        array(42, 5, 8, scale=2.0),
        array(42, 2, 300, scale=2.0),
        np.zeros((1, 5), np.float32),
    ):
        yield _router(logits, 2, {"gate": "sparsemixer"})
    yield _router(near, 4, {"gate": "sparsemixer", "normalize": 1, "scale": 2.5})


def _router(logits: Any, n_used: int, attrs: dict[str, Any], weights: dict[str, Any] | None = None) -> OpCase:
    rows = len(logits)
    views = {"ids": empty(rows, n_used), "probs": empty(rows, n_used), "logits": logits}
    return OpCase(op="router", views=views, weights=weights or {}, attrs=attrs)


def linear_cases() -> Iterator[OpCase]:
    shapes = ((1, 4, 2, 64, 96), (9, 3, 3, 256, 6), (3, 16, 1, 64, 130))  # rows, experts, used, in, out
    for type_ in ("f32", "f16", "bf16", "q8_0", "q4_0"):
        for rows, n_experts, n_used, n_in, n_out in shapes:
            choice = np.random.default_rng(45).permuted(np.tile(np.arange(n_experts), (rows, 1)), axis=1)
            ids = choice[:, :n_used].astype(np.float32)
            weights = {"weight": weight(type_, 46, n_experts, n_out, n_in)}
            for x in (array(47, rows, n_in), array(48, rows, n_used * n_in)):
                views = {"y": empty(rows, n_used * n_out), "x": x, "ids": ids}
                yield OpCase(op="linear_experts", views=views, weights=weights)
    bias = f32(array(49, n_experts, n_out))
    yield OpCase(op="linear_experts", views=views, weights={**weights, "bias": bias})
    yield OpCase(
        op="linear",
        views={"y": empty(3, 6), "x": array(50, 3, 64)},
        weights={"weight": weight("f32", 51, 6, 64), "bias": vector(52, 6)},
    )


def fused_cases() -> Iterator[OpCase]:
    """Gated products of experts, and their weighted sum, which webgpu lacks; more slots than a block sums."""
    for type_ in ("f32", "q8_0"):
        for rows, n_experts, n_used, n_in, n_out in ((1, 12, 10, 64, 96), (9, 3, 3, 256, 38)):
            stack, bias = (type_, 46, n_experts, n_out, n_in), f32(array(49, n_experts, n_out))
            given = {"weight": weight(*stack), "bias": bias}
            ids = np.argsort(array(45, rows, n_experts), axis=1)[:, :n_used].astype(np.float32)
            views = {"y": empty(rows, n_used * n_out), "x": array(47, rows, n_in), "ids": ids}
            halves = {**given, "up_weight": weight(type_, 50, *stack[2:]), "up_bias": bias}
            yield OpCase(op="linear_experts_glu", views=views, weights=halves, attrs={"act": "swiglu_oai"})
            views = {**views, "y": empty(rows, n_out), "x": array(48, rows, n_used * n_in)}
            views["probs"] = array(41, rows, n_used)
            yield OpCase(op="linear_experts_sum", views=views, weights=given)
