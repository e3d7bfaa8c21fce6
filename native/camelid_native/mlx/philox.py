"""Noise of draws: Philox4x32-10 (Salmon et al., SC 2011) keyed by the seed, as on every backend.

The counter is (token id, position, choice, purpose), so the noise does not depend on order or batch.
"""

from __future__ import annotations

from typing import NamedTuple

from camelid_native.mlx.arrays import F32, U32, U64, Array, mx

ROUNDS = 10
FACTORS, STEPS = (0xD2511F53, 0xCD9E8D57), (0x9E3779B9, 0xBB67AE85)
DRAW = 0  # purpose of the noise for sampling


class Noise(NamedTuple):
    """Which noise: arrays of u32 [O, 1]."""

    seed_low: Array
    seed_high: Array
    position: Array
    choice: Array


def philox(ids: Array, noise: Noise, purpose: int) -> Array:  # [1, V] -> [O, V] u32
    """The first word of each block."""
    zero = mx.zeros_like(noise.position + ids)
    a, b, c, d = zero + ids, zero + noise.position, zero + noise.choice, zero + purpose
    low, high = noise.seed_low, noise.seed_high
    for _ in range(ROUNDS):
        (a_high, a_low), (c_high, c_low) = _product(a, FACTORS[0]), _product(c, FACTORS[1])
        a, b, c, d = c_high ^ b ^ low, c_low, a_high ^ d ^ high, a_low
        low, high = (word + mx.array(step, dtype=U32) for word, step in zip((low, high), STEPS, strict=True))
    return a


def gumbel(ids: Array, noise: Noise) -> Array:  # [1, V] -> [O, V]
    """-log(-log(u)). Near 1, where float32 rounds u to 1, -log(u) is a series in d = 1 - u."""
    bits = philox(ids, noise, DRAW) >> 8
    u = (bits.astype(F32) + 0.5) * 2.0**-24
    d = ((0xFFFFFF - bits).astype(F32) + 0.5) * 2.0**-24
    series = d * (1.0 + d * (0.5 + d * (1.0 / 3.0 + d * 0.25)))
    return -mx.log(mx.where(d < 0.01, series, -mx.log(u)))


def _product(x: Array, factor: int) -> tuple[Array, Array]:
    """The upper and the lower word of a product."""
    wide = x.astype(U64) * mx.array(factor, dtype=U64)
    return (wide >> 32).astype(U32), (wide & 0xFFFFFFFF).astype(U32)
