"""The expanding matrix of latent attention, `kv_b`, cut into the parts that attention absorbs.

`kv_b` [heads * (nope + value), rank] maps the latent to each head's keys and values. Queries absorb the keys'
part, transposed: `attn_k_b` [heads, rank, nope]; the values' part is `attn_v_b` [heads, value, rank].
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from camelid.plan.weights import Weight, as_f32, take_rows

FLOATS = ("f32", "f16", "bf16")


def split_kv_b(tensors: Mapping[str, Weight], n_heads: int, nope: int, value: int) -> dict[str, Weight]:
    """The tensors, with `attn_kv_b` of files of before April 2025 cut into its parts."""
    out = dict(tensors)
    for name, kv_b in tensors.items():
        prefix, found, _ = name.partition("attn_kv_b.")
        if found and fits(kv_b, n_heads, nope, value):
            del out[name]
            for part in (k_of_kv_b(kv_b, n_heads, nope), v_of_kv_b(kv_b, n_heads, value)):
                out[f"{prefix}{part.name}.weight"] = replace(part, name=f"{prefix}{part.name}.weight")
    return out


def fits(kv_b: Weight, n_heads: int, nope: int, value: int) -> bool:
    """True if the matrix has the rows of all heads' keys and values."""
    return len(kv_b.shape) == 2 and kv_b.shape[0] == n_heads * (nope + value)


def k_of_kv_b(kv_b: Weight, n_heads: int, nope: int) -> Weight:
    """`attn_k_b`; blocks become float32, since they cannot be transposed."""
    each, rank = kv_b.shape[0] // n_heads, kv_b.shape[1]
    rows = take_rows(kv_b, "attn_k_b", [(head * each, nope) for head in range(n_heads)])
    if rows.stored_type not in FLOATS:
        rows = as_f32(rows)
    return replace(rows, shape=(n_heads, rank, nope)).then("transpose", nope, rank)


def v_of_kv_b(kv_b: Weight, n_heads: int, value: int) -> Weight:
    """`attn_v_b`."""
    each, rank = kv_b.shape[0] // n_heads, kv_b.shape[1]
    rows = take_rows(kv_b, "attn_v_b", [((head + 1) * each - value, value) for head in range(n_heads)])
    return replace(rows, shape=(n_heads, value, rank))
