"""Sizes of recurrent mixers from GGUF's `ssm.*` and `wkv.*` keys, and of latent attention."""

from __future__ import annotations

from collections.abc import Collection

from camelid.model.arch import Arch
from camelid.model.metadata_reader import MetadataReader
from camelid.model.spec import DeltaSpec, MlaSpec, RwkvSpec, SsmSpec
from camelid.plan.op_rows_recurrent import MAX_WKV_WIDTH

MAMBA2_MIXERS = ("mamba2", "attention_mamba2")
HEADS_EPS = 64e-5  # of the norm of heads, which no file states
RWKV6_MIXERS = ("rwkv6", "gated_rwkv6")
MIN_DT_RANK = 64  # of PLaMo 2
RWKV7_MIXERS = ("rwkv7_first", "rwkv7")


def read_ssm(metadata: MetadataReader, mixers: Collection[str]) -> SsmSpec | None:
    """Sizes of mamba or mamba2 layers, if any of these mixers has them."""
    if "mamba" in mixers:
        return _mamba(metadata)
    if "mamba_heads" in mixers:
        return _mamba_heads(metadata)
    return _mamba2(metadata) if {*MAMBA2_MIXERS} & {*mixers} else None


def _mamba2(metadata: MetadataReader) -> SsmSpec:
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


def _mamba(metadata: MetadataReader) -> SsmSpec:
    """Sizes of mamba layers, the first version; `ssm.time_step_rank` is the rank of the time steps."""
    return SsmSpec(
        n_heads=metadata.count("ssm.inner_size"),
        head_dim=1,
        n_groups=1,
        state_size=metadata.count("ssm.state_size"),
        conv_width=metadata.count("ssm.conv_kernel", least=2),
        dt_rank=metadata.count("ssm.time_step_rank"),
        part_eps=_part_eps(metadata),
    )


def _mamba_heads(metadata: MetadataReader) -> SsmSpec:
    """Sizes of mamba_heads layers; no file states the rank of their time steps."""
    n_heads = metadata.count("ssm.time_step_rank")
    return SsmSpec(
        n_heads=n_heads,
        head_dim=_head_dim(metadata, n_heads),
        n_groups=1,
        state_size=metadata.count("ssm.state_size"),
        conv_width=metadata.count("ssm.conv_kernel", least=2),
        dt_rank=max(MIN_DT_RANK, metadata.count("embedding_length") // 16),
    )


def _part_eps(metadata: MetadataReader) -> float:
    """The epsilon of Falcon Mamba's norms: the model's in files that state no other."""
    if not metadata.flag("ssm.dt_b_c_rms", default=False):
        return 0.0
    eps = metadata.number("ssm.dt_b_c_rms_epsilon", metadata.number("attention.layer_norm_rms_epsilon"))
    if not 0.0 < eps < 1.0:
        metadata.fail("ssm.dt_b_c_rms_epsilon", f"is {eps:g}, expected a number from 0 to 1")
    return eps


def read_delta(metadata: MetadataReader, arch: Arch) -> DeltaSpec:
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
        is_tiled=arch.tiles_key_heads,
    )


def read_rwkv(metadata: MetadataReader, mixers: Collection[str], hidden_size: int) -> RwkvSpec | None:
    """Sizes of RWKV layers, if any of these mixers has them.

    The norm of heads has `head_dim` times the model's epsilon in RWKV-7, and HEADS_EPS in RWKV-6 and in
    models whose other norms are RMS norms; for heads of 64 columns both are 64e-5.
    """
    if not {*RWKV6_MIXERS, *RWKV7_MIXERS} & {*mixers}:
        return None
    head_dim = metadata.count("wkv.head_size")
    if hidden_size % head_dim or head_dim > MAX_WKV_WIDTH:
        want = f"a divisor of {hidden_size}, at most {MAX_WKV_WIDTH}"
        metadata.fail("wkv.head_size", f"is {head_dim}, expected {want}")
    n_heads = hidden_size // head_dim
    n_key_heads = metadata.count("attention.head_count_kv", 0, least=0) or n_heads
    if n_heads % n_key_heads:
        metadata.fail("attention.head_count_kv", f"is {n_key_heads}, no divisor of {n_heads} heads")
    heads = {"n_heads": n_heads, "n_key_heads": n_key_heads, "head_dim": head_dim}
    if {*RWKV6_MIXERS} & {*mixers}:
        ranks = {f"{part}_rank": metadata.count(f"time_{part}_extra_dim") for part in ("decay", "mix")}
        return RwkvSpec(**heads, **ranks, norm_eps=HEADS_EPS)
    is_plain = metadata.has("attention.layer_norm_epsilon")
    return RwkvSpec(
        **heads,
        norm_eps=head_dim * metadata.number("attention.layer_norm_epsilon") if is_plain else HEADS_EPS,
        decay_rank=metadata.count("attention.decay_lora_rank"),
        rate_rank=metadata.count("attention.iclr_lora_rank"),
        value_rank=metadata.count("attention.value_residual_mix_lora_rank"),
        gate_rank=metadata.count("attention.gate_lora_rank", 0, least=0),
    )


def read_mla(metadata: MetadataReader, head_dim: int, norm_eps: float) -> MlaSpec:
    """Sizes of latent attention with query heads of `head_dim`.

    Files of before April 2025 lack `value_length_mla`; their `value_length` is that of a head.
    """
    rope_dim = metadata.count("rope.dimension_count")
    if rope_dim >= head_dim:
        metadata.fail("rope.dimension_count", f"is {rope_dim}, expected less than the head's {head_dim}")
    return MlaSpec(
        kv_rank=metadata.count("attention.kv_lora_rank"),
        rope_dim=rope_dim,
        q_rank=metadata.count("attention.q_lora_rank", 0, least=0),
        norm_eps=norm_eps,
        value_dim=metadata.count("attention.value_length_mla", metadata.count("attention.value_length")),
    )


def _head_dim(metadata: MetadataReader, n_heads: int) -> int:
    inner_size = metadata.count("ssm.inner_size")
    if inner_size % n_heads:
        metadata.fail("ssm.inner_size", f"is {inner_size}, expected a multiple of {n_heads} heads")
    return inner_size // n_heads
