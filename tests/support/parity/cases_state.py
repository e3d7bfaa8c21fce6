"""Cases of state: rows written, copied and attended to, in every type and in two tiers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from tests.support.parity.case_tools import array, empty, vector, weight

from camelid.backends.common.op_runner import OpCase, Quantized
from camelid.plan.tiers import BATCH, TAIL

STORED = ("f16", "q8_0", "q4_0")  # besides f32


def state_cases() -> Iterator[OpCase]:
    yield OpCase(
        op="kv_write",
        views={"k": array(9, 3, 128), "v": array(10, 3, 128)},
        positions=[15, 16, 17],
        keys=array(11, 20, 128),
        values=array(12, 20, 128),
    )
    yield OpCase(
        op="copy",
        views={},
        keys=array(11, 60, 128),
        values=array(12, 60, 128),
        copies=[(0, 2, 16), (1, 3, 5)],
        other_copies=[(1, 0, 7), (2, 3, 16)],
    )


def attention_cases() -> Iterator[OpCase]:
    heads = ((4, 2, 64), (3, 1, 128), (2, 2, 32), (8, 2, 256))
    for (n_heads, n_kv_heads, head_dim), positions in zip(
        heads, ([0], [63, 64, 65], [200, 5], [130]), strict=True
    ):
        n = max(positions) + 1
        sizes: Mapping[str, int] = {"n_heads": n_heads, "n_kv_heads": n_kv_heads}
        q = array(13, len(positions), n_heads * head_dim)
        yield OpCase(
            op="attention",
            views={"y": np.zeros_like(q), "q": q},
            positions=positions,
            keys=array(14, n, n_kv_heads * head_dim),
            values=array(15, n, n_kv_heads * head_dim),
            attrs={**sizes, "scale": head_dim**-0.5, "mask": "causal"},
        )
    yield from attention_ways()


def attention_ways() -> Iterator[OpCase]:
    ways: tuple[dict[str, Any], ...] = (
        *({"window": n} for n in (1, 5, 64, 66, 67, 1000)),
        {"softcap": 2.0},
        {"mask": "held"},
        {"mask": "held", "softcap": 1.0},
        {"mask": "held", "window": 5},
        *({"mask": "chunked", "window": n} for n in (1, 16, 33, 64, 1000)),
        {"window": 70, "softcap": 0.5},
    )
    for way in ways:
        for sinks in ({}, {"sinks": vector(37, 4)}):
            for first_kept in (0, 33):
                yield attention_case([66, 67], 4, 2, 32, 32, way, sinks, first_kept)
    for n in (1, 9, 80):  # a bias by distance; its last row covers all larger distances
        bias = {"bias": weight("f32", 58, n, 4)}
        yield attention_case([66, 67], 4, 2, 32, 32, {"window": 40 if n == 9 else 0}, bias, 33)
    yield attention_case([200], 2, 1, 32, 32, {"scale": 50.0, "softcap": 30.0}, {}, 0)
    yield from (steep_case(place) for place in (0, 7, 33, 63, 65))
    yield attention_case([20, 21], 4, 2, 48, 32, {}, {}, 0)  # values narrower than keys
    yield attention_case([20, 21], 4, 4, 32, 80, {"window": 6}, {}, 0)  # wider than keys


def steep_case(place: int) -> OpCase:
    """One key's score is above all others by 200: exp overflows without the highest score."""
    case = attention_case([66, 67], 4, 2, 32, 32, {"scale": 1.0}, {}, 0)
    assert case.keys is not None
    keys = 0.01 * case.keys
    keys[place] = 6.25
    return replace(case, keys=keys, views={**case.views, "q": np.ones_like(case.views["q"])})


def attention_case(
    positions: list[int],
    n_heads: int,
    n_kv_heads: int,
    head_dim: int,
    v_dim: int,
    way: Mapping[str, Any],
    weights: Mapping[str, Quantized],
    first_kept: int,
    n_held: int = 0,
    **more: Any,
) -> OpCase:
    """Rows after the last position, which a state may hold, are masked."""
    n = max(*positions, n_held - 1) + 1
    sizes = {"n_heads": n_heads, "n_kv_heads": n_kv_heads, "scale": head_dim**-0.5}
    views = {"y": empty(len(positions), n_heads * v_dim), "q": array(13, len(positions), n_heads * head_dim)}
    return OpCase(
        op="attention",
        views=views,
        weights=weights,
        positions=positions,
        first_kept=first_kept,
        keys=array(14, n, n_kv_heads * head_dim),
        values=array(15, n, n_kv_heads * v_dim),
        attrs={**sizes, **way},
        **more,
    )


def stored_cases() -> Iterator[OpCase]:
    """State of each type; 96 values per row are an odd number of blocks, and heads of 48 end within
    a block.
    """
    for kv_type in STORED:
        for width, v_width in ((128, 128), (96, 32), (544, 288)):
            keys, values = array(60, 40, width), array(61, 40, v_width)
            yield OpCase(
                op="kv_write",
                views={"k": rough(62, 4, width), "v": rough(63, 4, v_width)},
                positions=[15, 16, 17, 35],
                keys=keys,
                values=values,
                kv_type=kv_type,
            )
            copies = [(0, 2, 16), (1, 3, 5)]
            keys, values = array(60, 60, width), array(61, 60, v_width)
            yield OpCase(op="copy", views={}, keys=keys, values=values, copies=copies, kv_type=kv_type)
        for n_heads, n_kv_heads, head_dim, v_dim in ((4, 2, 64, 64), (4, 2, 48, 80), (2, 2, 256, 16)):
            for positions, first_kept in (([66, 3, 67], 0), ([200], 33)):
                heads = (n_heads, n_kv_heads, head_dim, v_dim)
                yield attention_case(positions, *heads, {}, {}, first_kept, 201, kv_type=kv_type)


def latent_cases() -> Iterator[OpCase]:
    """Keys whose first columns are the values, narrow and with several sides, in every type and two tiers."""
    for kv_type in ("f32", *STORED):
        keys = array(66, 40, 96)
        k = {"k": rough(67, 4, 96)}
        yield OpCase(op="kv_write", views=k, positions=[15, 16, 17, 35], keys=keys, kv_type=kv_type)
        yield OpCase(op="copy", views={}, keys=array(66, 60, 96), copies=[(0, 2, 16)], kv_type=kv_type)
        for heads in ((4, 1, 96, 64), (2, 1, 576, 512), (2, 1, 288, 260)):
            yield latent_case([66, 3, 67, 140], heads, kv_type=kv_type)
    border = TAIL + BATCH - 1
    yield latent_case([5, border, 700], (4, 1, 96, 64), kv_type="q8_0", has_tail=True)


def latent_case(positions: list[int], heads: tuple[int, int, int, int], **more: Any) -> OpCase:
    return replace(attention_case(positions, *heads, {}, {}, 0, **more), values=None)


def rough(seed: int, rows: int, cols: int) -> Any:
    """Rows that stress a quantizer: small and huge scales, a tie for the largest, exact halves and zeros."""
    made = array(seed, rows, cols)
    made[0] *= np.float32(1e-5)  # below float16's normal numbers
    made[1] *= np.float32(3e4)  # overflows float16
    made[1, :2] = 1e5, -1e5
    made[2, :32] = np.arange(-16, 16) + np.float32(0.5)
    made[2, 31] = 127.0
    made[2, 32:] = 2049 + 2 * np.arange(cols - 32)
    made[3, :32] = 0.0
    return made


def tail_cases() -> Iterator[OpCase]:
    """Two tiers, at both sides of each move of the border, and with one tier empty.

    All hold equally many rows: tables of equal sizes share pipelines, and each pipeline takes half a second.
    """
    border = TAIL + BATCH - 1  # the first row that reads the store
    n = 701
    ways: tuple[tuple[Mapping[str, Any], Mapping[str, Quantized]], ...] = (
        ({}, {}),
        ({"softcap": 2.0}, {"sinks": vector(64, 4)}),
        ({}, {"bias": weight("f32", 65, 300, 4)}),
    )
    for kv_type in STORED[1:]:
        for positions in ([5], [TAIL - 1, TAIL], [border - 1, border, border + 1], [border + BATCH, 700]):
            for way, weights in ways:
                heads = (4, 2, 48, 32)
                yield attention_case(positions, *heads, way, weights, 0, n, kv_type=kv_type, has_tail=True)
        heads, tiers = (2, 1, 32, 32), {"kv_type": kv_type, "has_tail": True}
        for first_kept in (33, BATCH, 300):  # in the store, at the border, in the tail
            yield attention_case([border], *heads, {}, {}, first_kept, n, **tiers)
        for tail_kept in (BATCH + 32, border - 15):  # rows that a tail freed before the border are masked
            yield attention_case([border], *heads, {}, {}, 0, n, **tiers, tail_kept=tail_kept)
