"""Specs of rotations (RoPE) from metadata: frequencies, scaling, and the axes of rows of images."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TypeAlias

from camelid.errors import UnsupportedModelError
from camelid.model.arch import Arch
from camelid.model.layer_specs import GLOBAL, LOCAL
from camelid.model.metadata_reader import MetadataReader
from camelid.model.rope import yarn_magnitude
from camelid.model.spec import RopeScaling, RopeSpec

Factors: TypeAlias = Mapping[str, tuple[float, ...]]
SCALINGS = ("none", "linear", "yarn", "longrope")


def read_ropes(metadata: MetadataReader, arch: Arch, head_dim: int, factors: Factors) -> dict[str, RopeSpec]:
    """The rotations by name: of layers that attend to all rows, and of window layers with their own."""
    if not arch.rope_style:
        return {}
    rope = RopeSpec(
        theta=metadata.number("rope.freq_base", 10000.0),
        dim=metadata.count("rope.dimension_count", head_dim),
        style=arch.rope_style,
        factors=factors.get("rope_freqs", ()),
        scaling=_scaling(metadata, arch, factors),
    )
    if arch.axes:
        rope = replace(rope, axes=_axes(metadata, arch, rope))
    if not arch.has_local_rope:
        return {GLOBAL: rope}
    local = metadata.number("rope.freq_base_swa", arch.local_theta or rope.theta)
    return {GLOBAL: rope, LOCAL: replace(rope, theta=local, scaling=None, factors=())}


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
        magnitude=_magnitude(metadata, kind, factor),
        is_rounded=arch.rounds_ramp,
        long_factors=factors.get("rope_factors_long", ()),
        short_factors=factors.get("rope_factors_short", ()),
    )


def _magnitude(metadata: MetadataReader, kind: str, factor: float) -> float:
    """The multiplier of cos and sin: YaRN's magnitude times the file's `attn_factor`.

    With a `yarn_log_multiplier`, the attention scale has YaRN's magnitude in place of cos and sin.
    """
    has_scale = metadata.number("rope.scaling.yarn_log_multiplier", 0.0) != 0.0
    default = yarn_magnitude(factor) if kind == "yarn" and not has_scale else 1.0
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
