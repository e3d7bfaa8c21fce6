"""Sizes of recurrent mixers from GGUF's `ssm.*` keys."""

from __future__ import annotations

from camelid.model.metadata_reader import MetadataReader
from camelid.model.spec import DeltaSpec, SsmSpec


def read_ssm(metadata: MetadataReader) -> SsmSpec:
    """Sizes of mamba2 layers; `ssm.time_step_rank` is the number of heads."""
    n_heads, n_groups = metadata.count("ssm.time_step_rank"), metadata.count("ssm.group_count", 1)
    if n_heads % n_groups:
        metadata.fail("ssm.time_step_rank", f"is {n_heads}, expected a multiple of {n_groups} groups")
    return SsmSpec(
        n_heads=n_heads,
        head_dim=_head_dim(metadata, n_heads),
        n_groups=n_groups,
        state_size=metadata.count("ssm.state_size"),
        conv_width=metadata.count("ssm.conv_kernel", least=2),
    )


def read_delta(metadata: MetadataReader) -> DeltaSpec:
    """Sizes of delta layers; `ssm.time_step_rank` counts value heads, `ssm.group_count` key heads."""
    n_heads, n_key_heads = metadata.count("ssm.time_step_rank"), metadata.count("ssm.group_count")
    if n_heads % n_key_heads:
        metadata.fail("ssm.time_step_rank", f"is {n_heads}, expected a multiple of {n_key_heads} key heads")
    return DeltaSpec(
        n_heads=n_heads,
        value_dim=_head_dim(metadata, n_heads),
        n_key_heads=n_key_heads,
        key_dim=metadata.count("ssm.state_size"),
        conv_width=metadata.count("ssm.conv_kernel", least=2),
    )


def _head_dim(metadata: MetadataReader, n_heads: int) -> int:
    inner_size = metadata.count("ssm.inner_size")
    if inner_size % n_heads:
        metadata.fail("ssm.inner_size", f"is {inner_size}, expected a multiple of {n_heads} heads")
    return inner_size // n_heads
