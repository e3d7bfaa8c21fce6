"""Relative position biases: a number for each head and distance. ALiBi computes it, T5 learns it.

ALiBi (arXiv 2108.12409): minus the distance times a slope per head. T5 (arXiv 1910.10683, section 2.1): one
learned row per bucket of distances. Near distances have their own buckets; the buckets of others grow evenly
in the logarithm up to a largest distance, and all distances beyond share the last bucket. The ops need one
row per distance, so backends implement neither slopes nor buckets.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import lru_cache

from camelid.model.lowering import Lowering
from camelid.model.spec import ModelSpec
from camelid.plan.weights import Weight, inline_f32

NAME = "attn_rel_b"
ALIBI = "alibi"


def alibi_weights(spec: ModelSpec) -> dict[str, Weight]:
    """The bias rows of all layers by name; none for a model without ALiBi. Rows of a model that encodes whole
    texts are by offset of the key, as in `bias_around`.
    """
    if not spec.max_alibi_bias:
        return {}
    first = 0 if spec.layers else 1 - spec.context_length
    return {ALIBI: alibi(spec.n_heads, spec.max_alibi_bias, spec.alibi_scale, first, spec.context_length)}


@lru_cache(maxsize=2)  # all programs of a model have the same rows
def alibi(n_heads: int, max_bias: float, scale: float, first: int, end: int) -> Weight:
    """Bias rows of the offsets from `first` to before `end`, whose sign does not matter; [offsets, H]."""
    slopes = [scale * slope for slope in alibi_slopes(n_heads, max_bias)]
    rows = (-slope * abs(offset) for offset in range(first, end) for slope in slopes)
    return inline_f32(ALIBI, rows, (end - first, n_heads))


def alibi_slopes(n_heads: int, max_bias: float) -> Iterator[float]:
    """A geometric sequence that ends at 2^-max_bias.

    Heads beyond a power of two take every second slope of the sequence for twice that power.
    """
    n = 1 << (n_heads.bit_length() - 1)
    yield from (2.0 ** (-max_bias * (i + 1) / n) for i in range(n))
    yield from (2.0 ** (-max_bias * (i + 0.5) / n) for i in range(n_heads - n))


def bias_back(c: Lowering, i: int) -> Weight | None:
    """Bias rows by distance back, the last for all beyond; [max_distance + 1, H]. None without a bias."""
    weight, most = _bias(c, i), c.spec.max_distance
    return weight and _pick(weight, [bucket(n, weight.rows, most) for n in range(most + 1)])


def bias_around(c: Lowering, i: int) -> Weight | None:
    """Bias rows by offset of the key, from -max_distance; [2 * max_distance + 1, H]. None without a bias.

    The first half of the buckets is for earlier keys and the row itself, the second half for later keys.
    """
    weight, most = _bias(c, i), c.spec.max_distance
    if weight is None:
        return c.weights.get(ALIBI)
    half = weight.rows // 2
    offsets = range(-most, most + 1)
    return _pick(weight, [bucket(abs(n), half, most) + half * (n > 0) for n in offsets])


def bucket(distance: int, n_buckets: int, max_distance: int) -> int:
    """The bucket of a distance >= 0, computed in integers: a rounded logarithm could be wrong at a border."""
    n_exact = n_buckets // 2
    if distance < n_exact:
        return distance
    n_log = n_buckets - n_exact
    # The largest j with (distance / n_exact) ** n_log >= (max_distance / n_exact) ** j
    reached = (distance**n_log * n_exact**j >= max_distance**j * n_exact**n_log for j in range(1, n_log))
    return n_exact + sum(reached)


def _bias(c: Lowering, i: int) -> Weight | None:
    """The bias of the layer, or of the first layer, which all layers then share."""
    return c.weights.get(f"blk.{i}.{NAME}", c.weights.get(f"blk.0.{NAME}"))


def _pick(weight: Weight, numbers: Sequence[int]) -> Weight:
    picked = replace(weight, shape=(len(numbers), weight.cols))
    return picked.then("pick", weight.rows, *numbers)
