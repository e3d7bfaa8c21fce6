"""From metadata to the sizes of mixers that keep one slot a sequence, which GGUF states as `ssm.*`."""

from __future__ import annotations

from camelid.model.metadata_reader import MetadataReader
from camelid.model.spec import DeltaSpec, SsmSpec


def read_ssm(metadata: MetadataReader) -> SsmSpec:
    """Sizes of mamba2 layers. `time_step_rank` is the number of heads."""
    n_heads, n_groups = metadata.count("ssm.time_step_rank"), metadata.count("ssm.group_count", 1)
    if n_heads % n_groups:
        metadata.fail("ssm.time_step_rank", f"is {n_heads}, which {n_groups} groups do not divide")
    return SsmSpec(
        n_heads=n_heads,
        head_dim=_head_dim(metadata, n_heads),
        n_groups=n_groups,
        state_size=metadata.count("ssm.state_size"),
        conv_width=metadata.count("ssm.conv_kernel", least=2),
    )


def read_delta(metadata: MetadataReader) -> DeltaSpec:
    """Sizes of delta layers. `time_step_rank` and `group_count` are the numbers of value and key heads."""
    n_heads, n_key_heads = metadata.count("ssm.time_step_rank"), metadata.count("ssm.group_count")
    if n_heads % n_key_heads:
        metadata.fail("ssm.time_step_rank", f"is {n_heads}, which {n_key_heads} key heads do not divide")
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
        metadata.fail("ssm.inner_size", f"is {inner_size}, which {n_heads} heads do not divide")
    return inner_size // n_heads
