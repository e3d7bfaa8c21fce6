"""Descending order with ties by the lowest id, which no sort of floats promises: order of unique integers."""

from __future__ import annotations

from camelid_native.mlx.arrays import U32, U64, Array, indices, mx


def keys_of(x: Array) -> Array:  # [n, V] float32 -> [n, V] u64
    """Unique keys, the smallest for the largest value; NaN counts as -inf.

    The upper half of a key is the value's bits, changed so that integers have their order; the lower half is
    the id.
    """
    bits = mx.where(mx.isnan(x), -mx.inf, x + 0.0).view(U32)  # + 0.0: -0.0 and 0.0 are one value
    sign = mx.array(1 << 31, dtype=U32)
    descending = mx.where(bits >= sign, bits, ~(bits | sign))
    return (descending.astype(U64) << 32) | indices(x.shape[1], U64)


def ordered(x: Array) -> Array:  # [n, V] -> [n, V] u64
    """The keys of each row, those of the largest values first."""
    return mx.sort(keys_of(x), axis=1)


def ids_of(keys: Array) -> Array:  # u64 -> u32
    """The ids in keys."""
    return (keys & 0xFFFFFFFF).astype(U32)
