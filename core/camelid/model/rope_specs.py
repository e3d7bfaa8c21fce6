"""Specs of rotations (RoPE) from metadata: frequencies, scaling, and the axes of rows of images."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TypeAlias

from camelid.errors import UnsupportedModelError
from camelid.model.arch import Arch
from camelid.model.layer_specs import GLOBAL, LOCAL
from camelid.model.lowering import OF_QUERIES
from camelid.model.metadata_reader import MetadataReader
from camelid.model.rope import FINE_ROWS, yarn_magnitude
from camelid.model.spec import RopeScaling, RopeSpec

Factors: TypeAlias = Mapping[str, tuple[float, ...]]
SCALINGS = ("none", "linear", "yarn", "longrope")


def read_ropes(metadata: MetadataReader, arch: Arch, head_dim: int, factors: Factors) -> dict[str, RopeSpec]:
    """The rotations by name: of layers that attend to all rows, and of window layers with their own."""
    if not arch.rope_style:
        return {}
    least = 0 if arch.rotates_heads else 1
    rope = RopeSpec(
        theta=metadata.number("rope.freq_base", 10000.0),
        dim=metadata.count("rope.dimension_count", head_dim, least=least) or head_dim,
        style=arch.rope_style,
        factors=factors.get("rope_freqs", ()),
        scaling=_scaling(metadata, arch, factors),
    )
    if arch.axes:
        rope = replace(rope, axes=_axes(metadata, arch, rope))
    if arch.has_temperature:
        return {GLOBAL: rope, GLOBAL + OF_QUERIES: _with_temperature(metadata, rope)}
    if not arch.has_local_rope:
        return {GLOBAL: rope}
    local = metadata.number("rope.freq_base_swa", arch.local_theta or rope.theta)
    dim = metadata.count("rope.dimension_count_swa", rope.dim)
    return {GLOBAL: rope, LOCAL: replace(rope, theta=local, dim=dim, scaling=None, factors=())}


def _axes(metadata: MetadataReader, arch: Arch, rope: RopeSpec) -> tuple[int, ...]:
    """The position channel of each pair: time, height or width."""
    key, n_pairs = metadata.key("rope.dimension_sections"), rope.dim // 2
    sections = metadata.gguf.get(key, list[int])
    time, height, width, *others = [*sections, 0, 0, 0]
    if min(time, height, width) < 0 or any(others) or time + height + width != n_pairs:
        metadata.fail("rope.dimension_sections", f"is {sections!r:.80}, expected three of sum {n_pairs}")
    if rope.scaling:
        raise UnsupportedModelError(
            f"{metadata.key('rope.scaling.type')} is {rope.scaling.kind!r} beside {key}; supported: none",
            kind=metadata.key("rope.scaling.type"),
            name=rope.scaling.kind,
        )
    if arch.axes == "sections":
        return (0,) * time + (1,) * height + (2,) * width
    ends = {1: 3 * height, 2: 3 * width}
    return tuple(i % 3 if i < ends.get(i % 3, 0) else 0 for i in range(n_pairs))


def _with_temperature(metadata: MetadataReader, rope: RopeSpec) -> RopeSpec:
    """The rotation of queries, which grow with their position."""
    name, length = "attention.temperature_length", rope.scaling.original_context if rope.scaling else 0
    scale, length = metadata.number("attention.temperature_scale", 0.0), metadata.count(name, length, least=0)
    if scale and (not length or length % FINE_ROWS):
        raise UnsupportedModelError(
            f"{metadata.key(name)} is {length}, expected a multiple of {FINE_ROWS}",
            kind=metadata.key(name),
            name=str(length),
        )
    return replace(rope, temperature=scale, temperature_length=length)


def _scaling(metadata: MetadataReader, arch: Arch, factors: Factors) -> RopeScaling | None:
    # A factor of 0 means no scaling, and a factor without a type linear scaling, as in llama.cpp.
    factor = metadata.number("rope.scaling.factor", metadata.number("rope.scale_linear", 1.0)) or 1.0
    default = "none" if factor == 1.0 else "linear"
    stated = metadata.gguf.get(metadata.key("rope.scaling.type"), str, default=default)
    kind = "longrope" if "rope_factors_long" in factors else stated
    if kind not in SCALINGS:
        raise UnsupportedModelError(
            f"{metadata.key('rope.scaling.type')} is {kind!r}; supported: {', '.join(SCALINGS)}",
            kind=metadata.key("rope.scaling.type"),
            name=kind,
        )
    if kind == "none":
        return None
    original = metadata.count("rope.scaling.original_context_length", metadata.count("context_length"))
    return RopeScaling(
        kind=kind,
        factor=factor,
        original_context=original,
        beta_fast=metadata.number("rope.scaling.yarn_beta_fast", 32.0),
        beta_slow=metadata.number("rope.scaling.yarn_beta_slow", 1.0),
        magnitude=_magnitude(metadata, arch, kind, factor),
        is_rounded=arch.rounds_ramp,
        long_factors=factors.get("rope_factors_long", ()),
        short_factors=factors.get("rope_factors_short", ()),
    )


def _magnitude(metadata: MetadataReader, arch: Arch, kind: str, factor: float) -> float:
    """The multiplier of cos and sin: YaRN's magnitude times the file's `attn_factor`.

    A `yarn_log_multiplier` divides the magnitude by that of this multiplier (DeepSeek's mscale_all_dim);
    latent attention has the magnitude in its scale, in place of cos and sin.
    """
    all_dim = metadata.number("rope.scaling.yarn_log_multiplier", 0.0)
    default = yarn_magnitude(factor) if kind == "yarn" else 1.0
    if all_dim:
        default = 1.0 if "mla" in arch.mixers else default / yarn_magnitude(factor, all_dim)
    _check_yarn_factor(metadata, default)
    return default * metadata.number("rope.scaling.attn_factor", 1.0)


def _check_yarn_factor(metadata: MetadataReader, default: float) -> None:
    """Refuses a `yarn_attn_factor` other than 1 or the computed magnitude.

    Converters of 2025 copy config.json's attention_factor to this key; llama.cpp computes the magnitude.
    """
    key = "rope.scaling.yarn_attn_factor"
    stated = metadata.number(key, default)
    if not min(abs(stated - default), abs(stated - 1.0)) < 1e-3:
        raise UnsupportedModelError(
            f"{metadata.key(key)} is {stated:g}, which is not supported; supported: 1 and {default:g}",
            kind=metadata.key(key),
            name=f"{stated:g}",
        )
