"""`ExpertsSpec` from GGUF metadata: counts, groups, gate and widths of a mixture of experts."""

from __future__ import annotations

from collections.abc import Mapping

from camelid.errors import UnsupportedModelError
from camelid.model.arch import Arch
from camelid.model.metadata_reader import MetadataReader
from camelid.model.spec import ExpertsSpec

# Values of expert_gating_func -> gates of the router op.
GATES: Mapping[int, str] = {1: "softmax", 2: "sigmoid", 3: "topk_softmax"}


def read_experts(metadata: MetadataReader, arch: Arch) -> ExpertsSpec | None:
    """The mixture of experts of a model, None without experts; ModelFormatError for impossible counts."""
    n_experts = metadata.count("expert_count", 0, least=0)
    if not n_experts:
        return None
    n_used = metadata.count("expert_used_count")
    if n_used > n_experts:
        metadata.fail("expert_used_count", f"is {n_used}, but there are {n_experts} experts")
    stated = metadata.has("expert_feed_forward_length")
    ffn_size = metadata.count("expert_feed_forward_length" if stated else "feed_forward_length")
    n_groups, n_groups_used = _groups(metadata, n_experts, n_used)
    chunk_experts = metadata.count("experts_per_group", 1)
    if n_experts % chunk_experts:
        metadata.fail("experts_per_group", f"is {chunk_experts}, no divisor of {n_experts} experts")
    return ExpertsSpec(
        n_experts=n_experts,
        n_used=n_used,
        ffn_size=ffn_size,
        gate=_gate(metadata, arch),
        normalize=metadata.flag("expert_weights_norm", default=arch.normalizes),
        scale=metadata.number("expert_weights_scale", 1.0) or 1.0,
        softcap=metadata.number("router_logit_softcapping", 0.0),
        weighs_input=_weighs_input(metadata, arch, n_used),
        shared_size=_shared_size(metadata, arch, ffn_size),
        n_groups=n_groups,
        n_groups_used=n_groups_used,
        chunk_size=metadata.count("expert_chunk_feed_forward_length", 0, least=0),
        chunk_experts=chunk_experts,
        chunk_scale=metadata.number("expert_group_scale", 1.0),
        latent_size=metadata.count("moe_latent_size", 0, least=0),
    )


def _groups(metadata: MetadataReader, n_experts: int, n_used: int) -> tuple[int, int]:
    """The number of groups of experts, and the number of groups that a row's experts come from."""
    n_groups = metadata.count("expert_group_count", 1, least=0) or 1
    n_groups_used = metadata.count("expert_group_used_count", n_groups, least=0) or n_groups
    if n_experts % n_groups:
        metadata.fail("expert_group_count", f"is {n_groups}, no divisor of {n_experts} experts")
    if n_groups_used > n_groups:
        metadata.fail("expert_group_used_count", f"is {n_groups_used}, but there are {n_groups} groups")
    if n_used > n_experts // n_groups * n_groups_used:
        metadata.fail("expert_used_count", f"is {n_used}, more than {n_groups_used} groups have")
    return n_groups, n_groups_used


def _gate(metadata: MetadataReader, arch: Arch) -> str:
    stated = metadata.count("expert_gating_func", 0, least=0)
    return GATES.get(stated) or arch.gate


def _weighs_input(metadata: MetadataReader, arch: Arch, n_used: int) -> bool:
    """True for experts whose input the probs multiply, of which a row uses one."""
    if arch.weighs_input and n_used > 1:
        raise UnsupportedModelError(
            f"{metadata.key('expert_used_count')} is {n_used}, expected 1 for {metadata.prefix}",
            kind=metadata.key("expert_used_count"),
            name=str(n_used),
        )
    return arch.weighs_input


def _shared_size(metadata: MetadataReader, arch: Arch, ffn_size: int) -> int:
    """Width of the shared expert: stated, or that of `expert_shared_count` experts."""
    n_shared = metadata.count("expert_shared_count", arch.n_shared, least=0)
    return metadata.count("expert_shared_feed_forward_length", n_shared * ffn_size, least=0)
