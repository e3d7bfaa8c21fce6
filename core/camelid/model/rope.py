"""RoPE angles as tables.

WGSL's sin and cos are loose, so angles never reach a shader. A position p is split into p % 256 and the rest;
two small tables hold cos and sin of both, and one complex product joins them (error about 1e-7), which keeps
a 128k context at under 1,000 table rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import cos, sin

from camelid.model.spec import RopeSpec
from camelid.plan.weights import Weight, inline_f32

FINE_ROWS = 256


def rope_frequencies(rope: RopeSpec) -> list[float]:
    """Radians a position, one for each pair: theta^(-2i/dim) / factor (RoFormer, arXiv 2104.09864)."""
    plain = [rope.theta ** (-2.0 * i / rope.dim) for i in range(rope.dim // 2)]
    factors = rope.factors or (1.0,) * len(plain)
    return [frequency / factor for frequency, factor in zip(plain, factors, strict=True)]


def rope_tables(rope: RopeSpec, context_length: int) -> tuple[Weight, Weight]:
    """(fine [256, dim], coarse [ceil(context / 256), dim]): cos and sin, alternating, for each pair."""
    n_coarse = -(-context_length // FINE_ROWS)
    fine = inline_f32("rope_fine", _angles(rope, range(FINE_ROWS)), (FINE_ROWS, rope.dim))
    positions = range(0, n_coarse * FINE_ROWS, FINE_ROWS)
    return fine, inline_f32("rope_coarse", _angles(rope, positions), (n_coarse, rope.dim))


def _angles(rope: RopeSpec, positions: range) -> Iterator[float]:
    frequencies = rope_frequencies(rope)
    for position in positions:
        for frequency in frequencies:
            yield cos(position * frequency)
            yield sin(position * frequency)
