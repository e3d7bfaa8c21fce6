"""Cases of recurrent ops: sequences that start (whatever their slots hold), decode and continue a prefill."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from tests.support.parity.case_tools import array, empty, f32, vector, weight

from camelid.backends.common.op_runner import OpCase

# Three sequences; one that decodes; one whose rows are more than a kernel takes at once.
SEQUENCES: tuple[dict[str, Any], ...] = (
    {"lengths": (3, 1, 2), "positions": (0, 1, 2, 7, 4, 5)},
    {"lengths": (1,), "positions": (9,)},
    {"lengths": (21, 2), "positions": (*range(4, 25), 0, 1)},
)


def conv_cases() -> Iterator[OpCase]:
    """Filters of several widths, also wider than a sequence's rows; channels in two workgroups."""
    for rows in SEQUENCES:
        n = sum(rows["lengths"])
        for act, n_taps, cols, bias in (
            ("silu", 4, 10, {"bias": vector(101, 10)}),
            ("none", 3, 130, {}),
            ("none", 7, 64, {"bias": vector(101, 64)}),
        ):
            yield OpCase(
                op="conv1d",
                views={"y": empty(n, cols), "x": array(102, n, cols)},
                weights={"weight": weight("f32", 103, cols, n_taps), **bias},
                attrs={"act": act},
                **_slots(rows, (n_taps - 1) * cols),
            )


def recurrent_cases() -> Iterator[OpCase]:
    yield from conv_cases()
    yield from mamba2_cases()
    yield from delta_cases()
    yield from shift_cases()
    yield from rwkv6_cases()
    yield from rwkv7_cases()
    yield from bonus_cases()


def mamba2_cases() -> Iterator[OpCase]:
    """Groups of one and more heads; state rows on one lane and several, of odd sizes; decays by column."""
    for rows in SEQUENCES:
        n = sum(rows["lengths"])
        for n_heads, head_rows, n_groups, cols, more in (
            (4, 8, 2, 6, {"d": vector(113, 4), "dt_bias": vector(114, 4)}),
            (6, 20, 3, 100, {}),
            (2, 3, 1, 300, {"d": vector(113, 2)}),
        ):
            case = mamba2_case(n, n_heads, head_rows, n_groups, cols, n_heads)
            case = replace(case, weights={**case.weights, **more}, **_slots(rows, n_heads * head_rows * cols))
            yield case
            yield replace(case, joined=("x", "b", "c"))
        case = mamba2_case(n, 70, 1, 1, 16, 70 * 16)  # as in the first Mamba
        yield replace(
            case, weights={**case.weights, "d": vector(113, 70)}, **_slots(rows, 70 * 16), joined=("b", "c")
        )


def mamba2_case(n: int, n_heads: int, head_rows: int, n_groups: int, cols: int, n_decays: int) -> OpCase:
    decays = -np.abs(array(109, n_heads, n_decays // n_heads))
    return OpCase(
        op="scan_mamba2",
        views={
            "y": empty(n, n_heads * head_rows),
            "x": array(105, n, n_heads * head_rows),
            "b": array(106, n, n_groups * cols),
            "c": array(107, n, n_groups * cols),
            "dt": array(108, n, n_heads, scale=3.0),
        },
        weights={"a": f32(decays)},
        attrs={"n_groups": n_groups},
    )


def delta_cases() -> Iterator[OpCase]:
    """Key heads with one head and with several; state rows on one lane and several, of odd sizes."""
    for rows in SEQUENCES:
        n = sum(rows["lengths"])
        for n_heads, head_rows, n_keys, cols, more in (
            (4, 8, 2, 8, {"dt_bias": vector(114, 4)}),
            (2, 70, 2, 128, {}),
            (3, 5, 1, 50, {"dt_bias": vector(114, 3)}),
        ):
            yield OpCase(
                op="scan_delta",
                views={
                    "y": empty(n, n_heads * head_rows),
                    "q": unit_vectors(110, n, n_keys, cols),
                    "k": unit_vectors(111, n, n_keys, cols),
                    "v": array(105, n, n_heads * head_rows),
                    "dt": array(108, n, n_heads),
                    "beta": np.abs(array(112, n, n_heads)) % np.float32(1.0),
                },
                weights={"a": f32(-np.abs(array(109, n_heads))), **more},
                attrs={"n_key_heads": n_keys, "scale": 0.35},
                joined=("q", "k") if n_heads > n_keys else (),
                **_slots(rows, n_heads * head_rows * cols),
            )


def shift_cases() -> Iterator[OpCase]:
    """One mix and several, in each part of the slot; columns in two workgroups."""
    for rows in SEQUENCES:
        n = sum(rows["lengths"])
        for cols, n_mixed, part in ((10, 3, 1), (130, 1, 0), (64, 6, 0)):
            yield OpCase(
                op="token_shift",
                views={"y": empty(n, n_mixed * cols), "x": array(102, n, cols)},
                weights={"lerp": weight("f32", 115, n_mixed, cols)},
                attrs={"part": part},
                **_slots(rows, 2 * cols),
            )


def rwkv6_cases() -> Iterator[OpCase]:
    """State rows on one lane and several, of odd sizes and of the most columns; keys of one head and of
    several; decays from almost 1 to almost 0.
    """
    for rows in SEQUENCES:
        n = sum(rows["lengths"])
        for n_heads, n_keys, cols in ((3, 3, 8), (4, 2, 50), (2, 1, 64), (1, 1, 256)):
            weights = {"u": f32(array(116, n_heads, cols))} if n_heads == n_keys else {}
            yield OpCase(
                op="scan_rwkv6",
                views={
                    "y": empty(n, n_heads * cols),
                    "r": array(110, n, n_heads * cols),
                    "w": array(108, n, n_heads * cols, scale=3.0),
                    "k": array(111, n, n_keys * cols),
                    "v": array(105, n, n_keys * cols),
                },
                weights=weights,
                attrs={"n_heads": n_heads},
                **_slots(rows, n_heads * cols * cols),
            )


def rwkv7_cases() -> Iterator[OpCase]:
    """State rows on one lane and several, of odd sizes and of the most columns; u of length 0 and of 1e-8."""
    for rows in SEQUENCES:
        n = sum(rows["lengths"])
        for n_heads, cols in ((3, 8), (2, 50), (1, 256)):
            k_k = array(116, n_heads, cols)
            k_k[1:2], k_k[2:3] = 0.0, 1e-8 * k_k[2:3]
            yield OpCase(
                op="scan_rwkv7",
                views={
                    "y": empty(n, n_heads * cols),
                    "r": array(110, n, n_heads * cols),
                    "w": array(108, n, n_heads * cols, scale=3.0),
                    "k": array(111, n, n_heads * cols),
                    "v": array(105, n, n_heads * cols),
                    "a": np.abs(array(112, n, n_heads * cols)) % np.float32(1.0),
                },
                weights={"k_k": f32(k_k.ravel()), "k_a": vector(117, n_heads * cols)},
                attrs={"n_heads": n_heads},
                **_slots(rows, n_heads * cols * cols),
            )


def bonus_cases() -> Iterator[OpCase]:
    """Heads of fewer columns than a workgroup has lanes, and of more."""
    for n, n_heads, cols in ((1, 3, 8), (9, 2, 50), (5, 2, 130)):
        yield OpCase(
            op="bonus_rwkv7",
            views={role: array(118 + i, n, n_heads * cols) for i, role in enumerate("xrkva")},
            weights={"k_a": vector(117, n_heads * cols), "r_k": vector(116, n_heads * cols)},
            attrs={"n_heads": n_heads},
        )


def unit_vectors(seed: int, n: int, n_heads: int, cols: int) -> Any:  # [n, n_heads * cols]
    """Head vectors of length 1, as the delta rule requires of its keys."""
    heads = array(seed, n, n_heads, cols)
    return (heads / np.linalg.norm(heads, axis=-1, keepdims=True)).reshape(n, -1)


def _slots(rows: Mapping[str, Any], n_floats: int) -> dict[str, Any]:
    return {"slots": array(104, len(rows["lengths"]), n_floats), **rows}
