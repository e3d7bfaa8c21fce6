"""RoPE angles as tables of cos and sin.

WGSL's sin and cos are imprecise, so shaders compute no angles. A position p is split into p % 256 and the
rest; two small tables have cos and sin of both, and one complex product joins them (error about 1e-7). A
context of 128k positions needs fewer than 1,000 table rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import lru_cache, partial
from math import ceil, cos, floor, log, pi, sin

from camelid.model.spec import ModelSpec, RopeScaling, RopeSpec
from camelid.plan.weights import Weight, inline_f32

FINE_ROWS = 256


def rope_weights(spec: ModelSpec) -> dict[str, Weight]:
    """Tables of all ropes of the model, by name: `<rope>.fine` and `<rope>.coarse`."""
    named = {name: rope for rope_name, rope in spec.ropes.items() for name, rope in _by_axis(rope_name, rope)}
    tables = (rope_tables(rope, spec.context_length, name) for name, rope in named.items())
    return {weight.name: weight for pair in tables for weight in pair}


def _by_axis(name: str, rope: RopeSpec) -> Iterator[tuple[str, RopeSpec]]:
    """The rotation, and one per axis, in which the other axes' pairs do not turn."""
    yield name, rope
    for axis in sorted({*rope.axes}):
        yield (
            axis_name(name, axis),
            replace(rope, axes=tuple(own if own == axis else -1 for own in rope.axes)),
        )


def axis_name(name: str, axis: int) -> str:
    """The name of the tables of one axis."""
    return f"{name}@{axis}"


@lru_cache(maxsize=16)  # all programs of a model have the same tables
def rope_tables(rope: RopeSpec, context_length: int, name: str = "rope") -> tuple[Weight, Weight]:
    """(fine [256, dim], coarse [ceil(context / 256), dim]): cos and sin of each pair, alternating."""
    n_coarse = -(-context_length // FINE_ROWS)
    frequencies, magnitude = rope_frequencies(rope, context_length), rope_magnitude(rope)
    fine = _angles(frequencies, range(FINE_ROWS), lambda _: magnitude)
    coarse = _angles(frequencies, range(0, n_coarse * FINE_ROWS, FINE_ROWS), partial(temperature, rope))
    shapes = (FINE_ROWS, rope.dim), (n_coarse, rope.dim)
    return inline_f32(f"{name}.fine", fine, shapes[0]), inline_f32(f"{name}.coarse", coarse, shapes[1])


def _angles(frequencies: list[float], positions: range, magnitude: Callable[[int], float]) -> Iterator[float]:
    for position in positions:
        size = magnitude(position)
        for frequency in frequencies:
            yield size * cos(position * frequency)
            yield size * sin(position * frequency)


def temperature(rope: RopeSpec, position: int) -> float:
    """Factor of queries at a position, constant over each `temperature_length` (Llama 4's scaling)."""
    if not rope.temperature:
        return 1.0
    return 1.0 + rope.temperature * log(1 + position // rope.temperature_length)


def rope_frequencies(rope: RopeSpec, context_length: int) -> list[float]:
    """Radians per position of each pair: theta^(-2i/dim) / factor (RoFormer, arXiv 2104.09864)."""
    plain = [rope.theta ** (-2.0 * i / rope.dim) for i in range(rope.dim // 2)]
    factors = rope.factors or (1.0,) * len(plain)
    if rope.scaling:
        stretch = STRETCHES[rope.scaling.kind](rope, context_length)
        factors = tuple(a * b for a, b in zip(factors, stretch, strict=True))
    turning = [axis >= 0 for axis in rope.axes] or [True] * len(plain)
    return [turns * f / factor for turns, f, factor in zip(turning, plain, factors, strict=True)]


def _linear(rope: RopeSpec, _: int) -> tuple[float, ...]:
    return (_scaling(rope).factor,) * (rope.dim // 2)


def _longrope(rope: RopeSpec, context_length: int) -> tuple[float, ...]:
    scaling = _scaling(rope)
    return scaling.long_factors if context_length > scaling.original_context else scaling.short_factors


def _yarn(rope: RopeSpec, _: int) -> tuple[float, ...]:
    """Factors of YaRN: slow pairs are stretched by the factor, fast pairs not at all, others in part."""
    s = _scaling(rope)
    low, high = _pair_of(s.beta_fast, rope), _pair_of(s.beta_slow, rope)
    if s.is_rounded:
        low, high = floor(low), ceil(high)
    low, high = max(low, 0), min(high, rope.dim - 1)
    shares = [min(max((i - low) / max(high - low, 0.001), 0.0), 1.0) for i in range(rope.dim // 2)]
    return tuple(1.0 / (share / s.factor + 1.0 - share) for share in shares)


def _pair_of(turns: float, rope: RopeSpec) -> float:
    """Index of the pair that makes `turns` turns over the original context."""
    context = _scaling(rope).original_context
    return rope.dim * log(context / (turns * 2.0 * pi)) / (2.0 * log(rope.theta))


STRETCHES: dict[str, Callable[[RopeSpec, int], tuple[float, ...]]] = {
    "linear": _linear,
    "yarn": _yarn,
    "longrope": _longrope,
}


def yarn_magnitude(factor: float, mscale: float = 1.0) -> float:
    """Factor of cos and sin for YaRN (arXiv 2309.00071, section 3.4); `mscale` is DeepSeek's."""
    return 0.1 * mscale * log(factor) + 1.0 if factor > 1.0 else 1.0


def rope_magnitude(rope: RopeSpec) -> float:
    """Factor of cos and sin, which keeps the entropy of attention over a stretched context."""
    return rope.scaling.magnitude if rope.scaling else 1.0


def _scaling(rope: RopeSpec) -> RopeScaling:
    assert rope.scaling is not None, "only a rope with scaling is stretched"
    return rope.scaling
