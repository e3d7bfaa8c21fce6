"""Gate cases of ops that read and write state, and of ops that read other token rows of the step."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from camelid.backends.common.op_runner import F32
from camelid.backends.proof.inputs import CaseRow, normal, row
from camelid.backends.proof.rows_basic import angles
from camelid.plan.tiers import BATCH, TAIL

KV_TYPES = ("f32", "f16", "q8_0", "q4_0")
TAIL_TYPES = ("q8_0", "q4_0")
# Widths of a head's keys and values, one of them not a multiple of a vector register's 8 or 16 floats.
UNEVEN = ((24, 16), (16, 24), (20, 16), (40, 32))
# Three sequences: one starts, one decodes, one continues its prefill.
LENGTHS: dict[str, Any] = {"lengths": (3, 1, 2), "positions": (0, 1, 2, 7, 4, 5)}

ALONE: dict[str, Any] = {"lengths": (1,), "positions": (9,)}


def rows() -> Iterator[CaseRow]:
    """All cases of this file."""
    for kv_type in KV_TYPES:
        yield from store_rows(kv_type)
    for n_heads, n_kv_heads, dim, positions in (
        (4, 2, 64, [0]),
        (3, 1, 128, [63, 64, 65]),
        (8, 2, 256, [130]),
    ):
        yield attention(positions, n_heads, n_kv_heads, dim, dim)
    yield from qkv_rows()
    yield from variant_rows()
    yield from tail_rows()
    yield from recurrent_rows()
    yield from encoder_rows()


def store_rows(kv_type: str) -> Iterator[CaseRow]:
    """KV writes, page copies and attention for one kv_type; 96 columns are an odd number of blocks."""
    for width, v_width in ((128, 128), (96, 32)):
        written: dict[str, Any] = {
            "k": rough(4, width), "v": rough(4, v_width), "positions": [15, 16, 17, 35],
            "keys": (40, width), "values": (40, v_width), "kv_type": kv_type,
        }  # fmt: skip
        yield row("kv_write", **written)
        yield row("tables", "kv_write", **written)
        yield row(
            "copy", keys=(60, width), values=(60, v_width), kv_type=kv_type,
            copies=[(0, 2, 16), (1, 3, 5)], other_copies=[(1, 0, 7), (2, 3, 16)],
        )  # fmt: skip
    yield attention([66, 3, 67], 4, 2, 48, 80, kv_type=kv_type)
    yield attention([200], 2, 2, 64, 64, first_kept=33, kv_type=kv_type)
    for dim, v_dim in UNEVEN:
        yield attention([66], 8, 8, dim, v_dim, kv_type=kv_type)


def qkv_rows() -> Iterator[CaseRow]:
    """A joined query, key and value, with head norms too: both orders of pairs, parts of a head, a bias, a
    value with a map of its own, a type with blocks.
    """
    for op, style, dim, offset, kv_type in (
        ("qkv", "norm", 32, 0, "f32"),
        ("norm_qkv", "neox", 32, 0, "f16"),
        ("norm_qkv", "norm", 16, 8, "q8_0"),
    ):
        x, squares = normal("values", 3, 64), normal("squares", 3, 16) ** 2
        more: dict[str, Any] = {"eps": 1e-5, "bias": (256,)} if op == "norm_qkv" else {}
        shared: dict[str, Any] = {
            "fine": angles(16, dim, 1.0), "coarse": angles(5, dim, 16.0), "k_cols": 64, "v_cols": 64,
            "head_dim": 32, "dim": dim, "offset": offset, "style": style, "positions": [15, 16, 17],
            "keys": (40, 64), "values": (40, 64), "kv_type": kv_type,
        }  # fmt: skip
        values = np.hstack([x, squares]) if more else x
        yield row(op, y=(3, 256), x=values, weight=("q8_0", 256, 64), **shared, **more)
        parts = {"weight": ("q8_0", 192, 64), "v_weight": ("q4_0", 64, 64)}
        biases = {"bias": (192,), "v_bias": (64,), "eps": 1e-5} if more else {}
        yield row(op, y=(3, 256), x=values, **parts, **shared, **biases)
        gains: dict[str, Any] = {"q_gain": (32,), "k_gain": (32,)}
        yield row("norm_rope_write", x=(3, 256), eps=1e-6, **gains, **shared)
        heads = {**parts, **gains, "head_eps": 1e-6, "has_tail": kv_type == "q8_0"}
        yield row(op, y=(3, 256), x=values, **heads, **shared, **biases)
    yield row("norm_rope", x=(3, 256), q_gain=(32,), k_gain=(32,), fine=angles(16, 32, 1.0),
              coarse=angles(5, 32, 16.0), k_cols=64, v_cols=64, head_dim=32, dim=32, style="neox", eps=1e-6,
              positions=[15, 16, 17])  # fmt: skip


def rough(n: int, cols: int) -> F32:
    """Hard rows for a quantizer: small and large scales, rounding ties, a block of zeros."""
    made = normal("rough", n, cols)
    made[0] *= np.float32(1e-5)  # below float16's normal numbers
    made[1] *= np.float32(1e3)
    made[2, :32] = np.arange(-16, 16) + np.float32(0.5)
    made[2, 31] = 127.0  # the scale of q8_0 is 1, so the halves are rounding ties
    made[3, :32] = 0.0
    return made


def attention(
    positions: list[int], n_heads: int, n_kv_heads: int, head_dim: int, v_dim: int, **more: Any
) -> CaseRow:
    """Attention of rows at these positions; the KV cache ends at the largest position."""
    n = max(positions) + 1
    facts: dict[str, Any] = {
        "y": (len(positions), n_heads * v_dim), "q": (len(positions), n_heads * head_dim),
        "keys": (n, n_kv_heads * head_dim), "values": (n, n_kv_heads * v_dim), "positions": positions,
        "n_heads": n_heads, "n_kv_heads": n_kv_heads, "scale": head_dim**-0.5,
    }  # fmt: skip
    return row("attention", **(facts | more))


def variant_rows() -> Iterator[CaseRow]:
    """Windows of one row, of whole pages, of the whole context and longer; softcaps, sinks, masks and biases.

    Each variant runs with all rows kept, and with rows before `first_kept` freed.
    """
    variants: tuple[dict[str, Any], ...] = (
        *({"window": n} for n in (1, 64, 67, 1000)),
        {"softcap": 2.0},
        {"mask": "held", "window": 5},
        *({"mask": "chunked", "window": n} for n in (16, 33, 1000)),
        {"sinks": (4,), "window": 70, "softcap": 0.5},
        *({"bias": (n, 4)} for n in (1, 9, 80)),
    )
    for variant in variants:
        for first_kept in (0, 33):
            yield attention([66, 67], 4, 2, 32, 32, first_kept=first_kept, **variant)
    yield attention([200], 2, 1, 32, 32, scale=50.0, softcap=30.0)


def tail_rows() -> Iterator[CaseRow]:
    """Two tiers: positions on both sides of a move of the border between store and tail.

    Also with no key read from the store, and with the first pages freed.
    """
    first_store_reader = TAIL + BATCH - 1
    for kv_type in TAIL_TYPES:
        tiers: dict[str, Any] = {"kv_type": kv_type, "has_tail": True}
        for positions in (
            [5],
            [first_store_reader - 1, first_store_reader, first_store_reader + 1],
            [first_store_reader + BATCH, 700],
        ):
            yield attention(positions, 4, 2, 48, 32, **tiers)
        yield attention([first_store_reader], 2, 1, 32, 32, first_kept=BATCH, sinks=(2,), **tiers)


def recurrent_rows() -> Iterator[CaseRow]:
    """Sequences that start (ignoring the contents of their slots), decode and continue a prefill."""
    negative_a = -np.abs(normal("decay", 4))
    for lengths in (LENGTHS, ALONE):
        n = sum(lengths["lengths"])
        slots = len(lengths["lengths"])
        for act in ("silu", "none"):
            yield row("conv1d", y=(n, 10), x=(n, 10), weight=(10, 4), bias=(10,), act=act,
                      slots=(slots, 30), **lengths)  # fmt: skip
        yield row("scan_mamba2", y=(n, 32), x=(n, 32), b=(n, 12), c=(n, 12), dt=(n, 4), a=negative_a, d=(4,),
                  dt_bias=(4,), n_groups=2, slots=(slots, 4 * 8 * 6), **lengths)  # fmt: skip
        yield row("scan_mamba2", y=(n, 6), x=(n, 6), b=(n, 12), c=(n, 12), dt=(n, 6),
                  a=-np.abs(normal("decays", 6, 12)), d=(6,), n_groups=1,
                  slots=(slots, 6 * 12), **lengths)  # fmt: skip
        yield row("scan_delta", y=(n, 32), q=unit_vectors(n, 2, 8), k=unit_vectors(n, 2, 8), v=(n, 32),
                  dt=(n, 4), beta=np.abs(normal("beta", n, 4)) % np.float32(1.0), a=negative_a, dt_bias=(4,),
                  scale=0.35, n_key_heads=2, slots=(slots, 4 * 8 * 8), **lengths)  # fmt: skip
        yield row("token_shift", y=(n, 30), x=(n, 10), lerp=(3, 10), part=1, slots=(slots, 20), **lengths)
        for width in (8, 64):  # 64: the state matrix is more than a kernel's thread takes at once
            cols = 3 * width
            k_k = normal("lengths", 3, width) * np.array([[1.0], [1e-8], [0.0]], np.float32)  # lengths of u
            rate = np.abs(normal("rate", n, cols)) % np.float32(1.0)
            views = dict.fromkeys(("y", "r", "w", "k", "v"), (n, cols))
            yield row("scan_rwkv6", **views, u=(3, width), n_heads=3, slots=(slots, cols * width), **lengths)
            yield row("scan_rwkv6", **views | dict.fromkeys("kv", (n, width)), n_heads=3,
                      slots=(slots, cols * width), **lengths)  # fmt: skip
            yield row("scan_rwkv7", **views, a=rate, k_k=k_k.ravel(), k_a=(cols,), n_heads=3,
                      slots=(slots, cols * width), **lengths)  # fmt: skip
        yield row("bonus_rwkv7", x=(n, 24), r=(n, 24), k=(n, 24), v=(n, 24), a=(n, 24), k_a=(24,), r_k=(24,),
                  n_heads=3)  # fmt: skip


def unit_vectors(n: int, n_heads: int, width: int) -> F32:  # [n, heads * width]
    """Head vectors of norm 1, as the delta rule requires of its keys."""
    heads = normal("keys", n, n_heads, width)
    return (heads / np.linalg.norm(heads, axis=-1, keepdims=True)).reshape(n, -1)


def encoder_rows() -> Iterator[CaseRow]:
    """Encoder ops: attention within a sequence of the step, pooling, and output of floats."""
    variants: tuple[dict[str, Any], ...] = (
        {}, {"mask": "causal"}, {"mask": "symmetric", "window": 2}, {"bias": (5, 4)},
    )  # fmt: skip
    n = sum(LENGTHS["lengths"])
    for variant in variants:
        yield row("attend_rows", y=(n, 64), q=(n, 32), k=(n, 16), v=(n, 32), n_heads=4, n_kv_heads=2,
                  scale=0.35, **LENGTHS, **variant)  # fmt: skip
    yield row("attend_rows", y=(70, 64), q=(70, 64), k=(70, 64), v=(70, 64), n_heads=1, n_kv_heads=1,
              scale=0.125)  # fmt: skip
    for kind in ("mean", "cls", "last"):
        yield row("pool", y=(3, 33), x=(n, 33), kind=kind, output_rows=[2, 3, 5], **LENGTHS)
    yield row("emit", x=(3, 50))
    yield row("emit", x=np.array([[1.0, np.nan], [0.0, 0.0]], np.float32))
