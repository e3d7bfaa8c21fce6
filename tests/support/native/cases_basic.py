"""Cases of the ops without a GPU kernel, and shapes that end within a vector, for the CPU kernels."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from tests.support.parity.case_tools import array, empty, f32, vector

from camelid.backends.common.op_runner import OpCase
from camelid.backends.reference.basic import ACTS
from camelid.plan.plan import Attr


def wide_cases() -> Iterator[OpCase]:
    """Rows longer than one span."""
    x, r = array(6, 2, 9001), array(7, 2, 9001)
    yield OpCase(op="add", views={"x": x, "r": r}, attrs={"scale": 0.3})
    yield OpCase(op="mul", views={"x": x, "r": r})
    yield OpCase(op="unary", views={"x": x}, attrs={"act": "silu"})
    yield OpCase(op="norm", views={"y": empty(2, 9001), "x": x}, attrs={"eps": 1e-5, "kind": "layer"})
    turn = {"fine": f32(_turns(8, 10)), "coarse": f32(_turns(3, 10))}
    for style in ("norm", "neox"):  # pairs of five
        how: dict[str, Attr] = {"head_dim": 13, "dim": 10, "style": style, "offset": 2}
        yield OpCase(op="rope", views={"x": array(8, 2, 39)}, weights=turn, positions=[7, 20], attrs=how)


def _turns(n: int, dim: int) -> Any:
    angles = array(9, n, dim // 2)
    return np.stack([np.cos(angles), np.sin(angles)], axis=2).reshape(n, dim)


def group_cases() -> Iterator[OpCase]:
    """Routers that select groups first."""
    for gate in ("softmax", "sigmoid"):
        for n_experts, n_groups, n_used, n_slots in ((16, 4, 2, 5), (60, 20, 7, 8), (6, 6, 3, 2)):
            groups = {"n_groups": n_groups, "n_groups_used": n_used}
            views = {r: empty(4, n_slots) for r in ("ids", "probs")} | {"logits": array(10, 4, n_experts)}
            attrs = {"gate": gate, "normalize": 1, "scale": 1.5, **groups}
            yield OpCase(op="router", views=views, attrs=attrs)
            yield OpCase(op="router", views=views, attrs=attrs, weights={"bias": vector(11, n_experts)})


# Row count and first position of each sequence; a sequence at position 0 must ignore its slot.
SPLITS: Sequence[Sequence[tuple[int, int]]] = (((1, 4),), ((1, 0),), ((5, 0), (1, 7), (9, 3)))


def slot_cases() -> Iterator[OpCase]:
    for split in SPLITS:
        n = sum(rows for rows, _ in split)
        where: dict[str, Any] = {
            "lengths": [rows for rows, _ in split],
            "positions": [first + i for rows, first in split for i in range(rows)],
        }
        for act in ("none", *ACTS):
            yield conv_case(n, 37, 4, {"act": act}, where, bias=act != "relu")
        yield conv_case(n, 16, 2, {}, where, bias=True)
        for width, rows, heads, groups in ((16, 8, 4, 2), (5, 19, 3, 1), (40, 33, 2, 2)):
            yield mamba2_case(n, width, rows, heads, groups, where)
            yield delta_case(n, width, rows, heads, groups, where)
        yield mamba_case(n, 19, 37, where)
        for cols, n_mixed, part in ((37, 1, 0), (16, 6, 1), (5, 3, 1)):
            yield shift_case(n, cols, n_mixed, part, where)
        for width, heads in ((16, 3), (5, 4), (40, 2), (64, 1)):
            yield rwkv7_case(n, width, heads, where)
            yield rwkv6_case(n, width, heads, heads, where)
        yield rwkv6_case(n, 16, 4, 2, where, u=False)
        yield rwkv6_case(n, 40, 3, 1, where, u=False)
    for width, heads in ((16, 3), (5, 4), (40, 2)):
        yield bonus_case(width, heads)


def conv_case(
    n: int, cols: int, taps: int, attrs: dict[str, Attr], where: dict[str, Any], *, bias: bool
) -> OpCase:
    weights = {"weight": f32(array(12, cols, taps))} | ({"bias": vector(13, cols)} if bias else {})
    slots = array(14, len(where["lengths"]), (taps - 1) * cols)
    views = {"y": empty(n, cols), "x": array(15, n, cols)}
    return OpCase(op="conv1d", views=views, weights=weights, attrs=attrs, slots=slots, **where)


def mamba2_case(n: int, width: int, rows: int, heads: int, groups: int, where: dict[str, Any]) -> OpCase:
    cols = {"y": heads * rows, "x": heads * rows, "b": groups * width, "c": groups * width, "dt": heads}
    weights = {"a": f32(-np.abs(array(16, heads))), "d": vector(17, heads), "dt_bias": vector(18, heads)}
    return OpCase(
        op="scan_mamba2",
        views={role: array(i, n, c) for i, (role, c) in enumerate(cols.items())},
        weights=weights if width != 5 else {"a": weights["a"]},
        attrs={"n_groups": groups},
        slots=array(19, len(where["lengths"]), heads * rows * width),
        **where,
    )


def mamba_case(n: int, width: int, heads: int, where: dict[str, Any]) -> OpCase:
    """Mamba 1: heads of one column, and a decay for each column of the state."""
    case = mamba2_case(n, width, 1, heads, 1, where)
    return replace(case, weights={**case.weights, "a": f32(-np.abs(array(16, heads, width)))})


def delta_case(n: int, width: int, rows: int, heads: int, keys: int, where: dict[str, Any]) -> OpCase:
    size = {"q": keys * width, "k": keys * width, "v": heads * rows, "dt": heads, "beta": heads}
    scale = {"q": 1.0, "k": width**-0.5, "beta": 0.5}  # keys of length 1 keep the state bounded
    views = {role: array(i, n, c, scale=scale.get(role, 1.0)) for i, (role, c) in enumerate(size.items())}
    weights = {"a": f32(-np.abs(array(16, heads))), "dt_bias": vector(18, heads)}
    return OpCase(
        op="scan_delta",
        views={"y": empty(n, heads * rows), **views},
        weights=weights if width != 5 else {"a": weights["a"]},
        attrs={"n_key_heads": keys, "scale": 0.3},
        slots=array(19, len(where["lengths"]), heads * rows * width),
        **where,
    )


def shift_case(n: int, cols: int, n_mixed: int, part: int, where: dict[str, Any]) -> OpCase:
    return OpCase(
        op="token_shift",
        views={"y": empty(n, n_mixed * cols), "x": array(15, n, cols)},
        weights={"lerp": f32(array(12, n_mixed, cols))},
        attrs={"part": part},
        slots=array(14, len(where["lengths"]), 2 * cols),
        **where,
    )


def rwkv7_case(n: int, width: int, heads: int, where: dict[str, Any]) -> OpCase:
    """The last head has u of length 0, the first of about 1e-8."""
    cols = heads * width
    k_k = array(16, cols)
    k_k[:width] *= np.float32(1e-8)
    k_k[-width:] = 0.0
    views = {role: array(i, n, cols, scale={"w": 3.0}.get(role, 0.5)) for i, role in enumerate("rwkva")}
    return OpCase(
        op="scan_rwkv7",
        views={"y": empty(n, cols), **views},
        weights={"k_k": f32(k_k), "k_a": vector(17, cols)},
        attrs={"n_heads": heads},
        slots=array(19, len(where["lengths"]), cols * width),
        **where,
    )


def rwkv6_case(n: int, width: int, heads: int, keys: int, where: dict[str, Any], *, u: bool = True) -> OpCase:
    """Decays from almost 1 to almost 0."""
    cols, key_cols = heads * width, keys * width
    views = {"r": array(1, n, cols), "w": array(2, n, cols, scale=2.0)}
    views |= {role: array(i, n, key_cols) for i, role in enumerate("kv", 3)}
    return OpCase(
        op="scan_rwkv6",
        views={"y": empty(n, cols), **views},
        weights={"u": f32(array(16, heads, width))} if u else {},
        attrs={"n_heads": heads},
        slots=array(19, len(where["lengths"]), cols * width),
        **where,
    )


def bonus_case(width: int, heads: int) -> OpCase:
    weights = {"k_a": vector(17, heads * width), "r_k": vector(18, heads * width)}
    views = {role: array(i, 5, heads * width) for i, role in enumerate("xrkva")}
    return OpCase(op="bonus_rwkv7", views=views, weights=weights, attrs={"n_heads": heads})


def own_cases() -> list[OpCase]:
    return [*wide_cases(), *group_cases(), *slot_cases()]
