"""From metadata to the sizes of mixers that keep one slot a sequence, which GGUF states as `ssm.*`."""

from __future__ import annotations

from camelid.model.getters import Facts
from camelid.model.spec import DeltaSpec, SsmSpec


def read_ssm(facts: Facts) -> SsmSpec:
    """Sizes of mamba2 layers. `time_step_rank` is the number of heads."""
    n_heads, n_groups = facts.count("ssm.time_step_rank"), facts.count("ssm.group_count", 1)
    if n_heads % n_groups:
        facts.fail("ssm.time_step_rank", f"is {n_heads}, which {n_groups} groups do not divide")
    return SsmSpec(
        n_heads=n_heads,
        head_dim=_head_dim(facts, n_heads),
        n_groups=n_groups,
        state_size=facts.count("ssm.state_size"),
        conv_width=facts.count("ssm.conv_kernel", least=2),
    )


def read_delta(facts: Facts) -> DeltaSpec:
    """Sizes of delta layers. `time_step_rank` and `group_count` are the numbers of value and key heads."""
    n_heads, n_key_heads = facts.count("ssm.time_step_rank"), facts.count("ssm.group_count")
    if n_heads % n_key_heads:
        facts.fail("ssm.time_step_rank", f"is {n_heads}, which {n_key_heads} key heads do not divide")
    return DeltaSpec(
        n_heads=n_heads,
        value_dim=_head_dim(facts, n_heads),
        n_key_heads=n_key_heads,
        key_dim=facts.count("ssm.state_size"),
        conv_width=facts.count("ssm.conv_kernel", least=2),
    )


def _head_dim(facts: Facts, n_heads: int) -> int:
    inner_size = facts.count("ssm.inner_size")
    if inner_size % n_heads:
        facts.fail("ssm.inner_size", f"is {inner_size}, which {n_heads} heads do not divide")
    return inner_size // n_heads
