"""`ModelSpec` from GGUF metadata: every key is checked for type, range and consistency."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace

from camelid.errors import ModelFormatError, TensorShapeError, UnsupportedModelError
from camelid.model.arch import Arch, Model
from camelid.model.checkpoint import Checkpoint
from camelid.model.encoder_specs import read_encoder, read_stacks, rows_of
from camelid.model.expert_specs import GATES, read_experts
from camelid.model.layer_specs import read_layers
from camelid.model.lowering import OF_QUERIES
from camelid.model.metadata_reader import MetadataReader
from camelid.model.mixer_specs import MAMBA2_MIXERS, read_delta, read_mla, read_rwkv, read_ssm
from camelid.model.own_counts import most, with_own_counts
from camelid.model.rope_specs import Factors, read_ropes
from camelid.model.spec import MAX_HEAD_DIM, ExpertsSpec, ModelSpec, RopeSpec
from camelid.model.stream_specs import sparsity
from camelid.plan.weights import Weight

FACTOR_TENSORS = ("rope_freqs", "rope_factors_long", "rope_factors_short")
MAX_ALIBI = 1 << 23  # numbers of its table; MPT-7B-StoryWriter has 2^21

# Keys of features that no row has -> values that leave the results unchanged. Other values are refused.
REFUSED: Mapping[str, tuple[object, ...]] = {
    "altup.active_idx": (0,),
    "attention.output_scale": (0.0, 1.0),
    "attention.q_lora_rank": (0,),
    "attention.kv_lora_rank": (0,),
    "attention.shared_kv_layers": (0,),
    "attention.temperature_scale": (0.0,),
    "expert_gating_func": (0, *GATES),  # 0 not stated
    "moe_every_n_layers": (0, 1),
    "rope.dimension_sections": (),
    "rope.scaling.alpha": (0.0,),
    "rope.scaling.yarn_ext_factor": (-1.0, 1.0),  # llama.cpp: -1 not stated, 1 full extrapolation
    "rope.scaling.yarn_log_multiplier": (0.0,),
    "router_logit_softcapping": (0.0,),
    "ssm.conv_kernel": (0,),
    "ssm.dt_b_c_rms": (False,),
}
# Keys of REFUSED that a mixer reads.
OWN_KEYS: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(("mamba", "mamba_heads", *MAMBA2_MIXERS), ("ssm.conv_kernel", "ssm.dt_b_c_rms")),
    "delta": ("ssm.conv_kernel", "rope.dimension_sections"),  # sections of positions are equal for text
    "mla": ("attention.q_lora_rank", "attention.kv_lora_rank", "rope.scaling.yarn_log_multiplier"),
}

OUTPUT_SCALE = "attention.output_scale"  # factor of scores, named by its place in Grok's code
TEMPERATURE_KEYS = ("attention.temperature_scale", "rope.scaling.yarn_log_multiplier")


def read_spec(checkpoint: Checkpoint, name: str, arch: Arch, factors: Factors) -> ModelSpec:
    """The spec of a checkpoint of architecture `name`; `factors` are its tensors of RoPE factors.

    Raises ModelFormatError for impossible metadata, UnsupportedModelError for a feature no row has.
    """
    metadata = MetadataReader(checkpoint.header, name)
    _check_refused(metadata, arch)
    arch = _without_gates(arch, checkpoint.tensors)
    n_layers = _n_layers(metadata, len(checkpoint.tensors))
    n_heads, hidden_size = _n_heads(metadata, arch, n_layers), metadata.count("embedding_length")
    head_dim = _head_dim(metadata, max(1, hidden_size // n_heads))
    experts = read_experts(metadata, arch)
    ropes = read_ropes(metadata, arch, head_dim, factors)
    layers = read_layers(metadata, arch, n_layers, _routed(checkpoint, n_layers) if experts else [])
    layers = with_own_counts(metadata, layers) if arch.varies else layers
    residual = _residual(metadata, arch, checkpoint.tensors)
    layers = tuple(replace(layer, residual=residual) for layer in layers)
    if arch.is_encoder_decoder:
        encoder, layers = read_stacks(metadata, layers[0], len(checkpoint.tensors))
    else:
        encoder = read_encoder(metadata, arch, layers, checkpoint.tensors)
    mixers, rotations = {layer.mixer for layer in layers}, {layer.rope for layer in layers}
    attention_scale = _attention_scale(metadata, arch, n_layers, hidden_size / n_heads, head_dim)
    is_tied = "output.weight" not in checkpoint.tensors
    spec = ModelSpec(
        arch=name,
        name=checkpoint.header.get("general.name", str, default=name),
        n_layers=len(layers),
        n_heads=n_heads,
        n_kv_heads=_n_kv_heads(metadata, arch, n_layers, n_heads),
        head_dim=head_dim,
        hidden_size=hidden_size,
        ffn_size=_ffn_size(metadata, arch, n_layers),
        vocab_size=_embedding(checkpoint.tensors).shape[0],
        context_length=metadata.count("context_length"),
        norm_eps=_norm_eps(metadata, arch),
        norm_kind=arch.norm_kind,
        ropes={name: rope for name, rope in ropes.items() if name.removesuffix(OF_QUERIES) in rotations},
        layers=() if encoder and not arch.is_encoder_decoder else layers,
        encoder=encoder,
        n_token_types=rows_of(checkpoint.tensors, "token_types"),
        is_tied=is_tied,
        experts=experts,
        ssm=read_ssm(metadata, mixers),
        delta=read_delta(metadata, arch) if "delta" in mixers else None,
        mla=read_mla(metadata, head_dim, arch.latent_eps) if "mla" in mixers else None,
        rwkv=read_rwkv(metadata, mixers, hidden_size),
        rescale_every=metadata.count("rescale_every_n_layers", 0, least=0),
        conv_width=metadata.count("shortconv.l_cache", least=2) if "shortconv" in mixers else 0,
        attention_scale=attention_scale,
        max_alibi_bias=metadata.number("attention.max_alibi_bias", arch.alibi_bias(n_layers)),
        alibi_scale=attention_scale if arch.scales_alibi else 1.0,
        norms_rotated=arch.norms_rotated,
        unit_heads=_has_unit_heads(metadata, arch, experts),
        is_chunked=arch.is_chunked,
        nope_temperature=_nope_temperature(metadata, arch),
        nope_temperature_length=metadata.count("attention.temperature_length", arch.nope_temperature[1] or 1),
        qkv_limit=metadata.number("attention.clamp_kqv", 0.0),
        attention_softcap=metadata.number("attn_logit_softcapping", arch.softcaps[0]),
        logit_softcap=metadata.number("final_logit_softcapping", arch.softcaps[1]),
        logit_scale=_logit_scale(metadata, arch, hidden_size, is_tied=is_tied),
        embedding_scale=metadata.number("embedding_scale", arch.embedding_scale(hidden_size)),
        residual_scale=metadata.number("residual_scale", arch.residual_scale(n_layers)),
        max_distance=arch.max_distance,
        n_buckets=metadata.count("attention.relative_buckets_count", least=2) if arch.max_distance else 0,
        start_id=metadata.count("decoder_start_token_id", least=0) if arch.is_encoder_decoder else 0,
        sees_images=arch.sees_images,
        norms_values=arch.norms_values,
        ffn_cutoff=max(sparsity(metadata, n_layers)) if arch.mlp == "sparse_glu" else 0.0,
        n_streams=metadata.count("altup.num_inputs", least=2) if arch.residual == "altup" else 1,
        input_size=metadata.count("embedding_length_per_layer_input", 0, least=0),
        laurel_rank=rows_of(checkpoint.tensors, "blk.0.laurel_l"),
        n_deepstack=metadata.count("n_deepstack_layers", 0, least=0),
    )
    _check_spec(spec, metadata)
    return spec


def at_context(model: Model, context_length: int) -> Model:
    """The model at a shorter context: smaller RoPE tables, and LongRoPE picks its factors by the length."""
    return replace(model, spec=replace(model.spec, context_length=context_length))


def _has_unit_heads(metadata: MetadataReader, arch: Arch, experts: ExpertsSpec | None) -> bool:
    is_plain = experts is not None and experts.n_experts == arch.plain_experts
    return arch.unit_heads and metadata.flag("use_qk_norm", default=not is_plain)


def _nope_temperature(metadata: MetadataReader, arch: Arch) -> float:
    scale = arch.nope_temperature[0]
    return metadata.number("attention.temperature_scale", scale) if scale else 0.0


def _check_refused(metadata: MetadataReader, arch: Arch) -> None:
    own = {"attention.shared_kv_layers"} if arch.shares_kv else set[str]()
    own |= {"rope.dimension_sections"} if arch.axes else set[str]()
    own |= {*TEMPERATURE_KEYS} if arch.has_temperature or arch.nope_temperature[0] else set[str]()
    own |= {*arch.reads}
    own |= {key for mixer in arch.mixers for key in OWN_KEYS.get(mixer, ())}
    rules = {**REFUSED, **arch.refused}
    refused = {metadata.key(name): values for name, values in rules.items() if name not in own}
    for key, values in (refused | {"split.count": (0, 1)}).items():
        value = metadata.gguf.metadata.get(key)
        if value is not None and value not in values:
            raise UnsupportedModelError(
                f"{key} is {value!r}, which is not supported for {metadata.prefix}; "
                f"supported: {', '.join(map(repr, values)) or 'no value'}",
                kind=key,
                name=value,
            )


def _n_layers(metadata: MetadataReader, n_tensors: int) -> int:
    """The number of layers that predict the next token.

    `block_count` also counts layers of multi-token prediction, which come last. A count above the number of
    tensors is refused before it costs memory.
    """
    n_blocks, n_more = metadata.count("block_count"), metadata.count("nextn_predict_layers", 0, least=0)
    if n_blocks > n_tensors:
        metadata.fail("block_count", f"is {n_blocks}, but the file has {n_tensors} tensors; it is damaged")
    if n_more >= n_blocks:
        metadata.fail("nextn_predict_layers", f"is {n_more}, but block_count is {n_blocks}")
    return n_blocks - n_more


def _n_heads(metadata: MetadataReader, arch: Arch, n_layers: int) -> int:
    """Attention heads; a model without attention, whose files state 0, has one that no layer reads."""
    if arch.varies:
        return most(metadata, "attention.head_count", n_layers)
    if len(arch.mixers) > 1 and metadata.is_list("attention.head_count"):
        heads = metadata.counts("attention.head_count", n_layers, 0)
        return _of_some_layers(metadata, "attention.head_count", heads, 1)
    return metadata.count("attention.head_count", least=int(arch.has_attention)) or 1


def _norm_eps(metadata: MetadataReader, arch: Arch) -> float:
    """The norms' epsilon. llama.cpp states phimoe's, whose norms subtract means, as that of RMS norms."""
    plain, rms = "attention.layer_norm_epsilon", "attention.layer_norm_rms_epsilon"
    is_rms = arch.norm_kind == "rms" or (metadata.has(rms) and not metadata.has(plain))
    return metadata.number(rms if is_rms else plain)


def _head_dim(metadata: MetadataReader, default: int) -> int:
    """Floats of a query head; with latent attention `key_length` may be the width of a cached row."""
    return metadata.count("attention.key_length_mla", metadata.count("attention.key_length", default))


def _ffn_size(metadata: MetadataReader, arch: Arch, n_layers: int) -> int:
    """The width of the MLPs, the same in all layers that have one; 0 if none has."""
    name = "feed_forward_length"
    if arch.varies:
        return most(metadata, name, n_layers)
    if arch.residual != "single":
        return metadata.count(name) // arch.ffn_matrices
    return _of_some_layers(metadata, name, metadata.counts(name, n_layers, 0), 0)


def _of_some_layers(metadata: MetadataReader, name: str, values: Iterable[int], default: int) -> int:
    """The number that the layers with a number other than 0 share; `default` if there is none."""
    stated = {n for n in values if n}
    if len(stated) > 1:
        raise UnsupportedModelError(
            f"{metadata.key(name)} is {sorted(stated)} in the layers that have it, expected one number",
            kind=metadata.key(name),
            name=str(sorted(stated)),
        )
    return next(iter(stated), default)


def _n_kv_heads(metadata: MetadataReader, arch: Arch, n_layers: int, n_heads: int) -> int:
    """KV heads of the layers with a KV cache, the same in all of them; `n_heads` if no layer has one."""
    name = "attention.head_count_kv"
    if not arch.has_attention:
        return n_heads
    if "mla" in arch.mixers:
        return 1  # all heads share the latent; files of before April 2025 state the heads
    if arch.varies:
        return most(metadata, name, n_layers, n_heads)
    if len(arch.mixers) == 1:
        return metadata.count(name, n_heads)
    return _of_some_layers(metadata, name, metadata.counts(name, n_layers, n_heads), n_heads)


def _embedding(tensors: Mapping[str, Weight]) -> Weight:
    tensor = tensors.get("token_embd.weight")
    if tensor is None or len(tensor.shape) != 2:
        got = tensor.shape if tensor else "nothing"
        raise TensorShapeError(
            f"token_embd.weight: found {got}, expected a matrix [vocab_size, hidden_size]",
            name="token_embd",
            got=got,
        )
    return tensor


def _routed(checkpoint: Checkpoint, n_layers: int) -> list[bool]:
    """True for layers with a router; for all of them if there is none, since the model states experts."""
    routed = [f"blk.{i}.ffn_gate_inp.weight" in checkpoint.tensors for i in range(n_layers)]
    return routed if any(routed) else [True] * n_layers


def _attention_scale(
    metadata: MetadataReader, arch: Arch, n_layers: int, width: float, head_dim: int
) -> float:
    """The stated scale, else head_dim^-0.5, or `width`^-0.5 in a model of `arch.wide_layers` layers."""
    default = (
        width**-0.5 if n_layers == arch.wide_layers else arch.attention_scale or head_dim**arch.scale_power
    )
    default *= _yarn_scale(metadata) if "mla" in arch.mixers else 1.0
    key = OUTPUT_SCALE if OUTPUT_SCALE in arch.reads else "attention.scale"
    return metadata.number(key, default) or default


def _yarn_scale(metadata: MetadataReader) -> float:
    """Square of 1 + yarn_log_multiplier * ln(factor): DeepSeek's attention over a stretched context."""
    factor = metadata.number("rope.scaling.factor", 1.0)
    stretch = math.log(factor) if factor > 1.0 else 0.0
    return (1.0 + metadata.number("rope.scaling.yarn_log_multiplier", 0.0) * stretch) ** 2


def _logit_scale(metadata: MetadataReader, arch: Arch, hidden_size: int, *, is_tied: bool) -> float:
    default = hidden_size / arch.depth_scales[2] if arch.depth_scales else arch.logit_scale
    if arch.scales_tied and is_tied:
        default = hidden_size**-0.5
    stated = metadata.number("logit_scale", default) or 1.0
    return stated if arch.multiplies_logits else 1.0 / stated


def _without_gates(arch: Arch, tensors: Mapping[str, Weight]) -> Arch:
    """The row with plain MLPs, if the architecture has a form without gates and the file is of that form."""
    is_gated = not arch.plain_act or f"{arch.stacks[0]}blk.0.ffn_gate.weight" in tensors
    return arch if is_gated else replace(arch, mlp="mlp", act=arch.plain_act)


def _residual(metadata: MetadataReader, arch: Arch, tensors: Mapping[str, Weight]) -> str:
    """The row's residual; a parallel one may be switched off by the file."""
    if arch.residual != "parallel":
        return arch.residual
    if arch.sequential_by:
        is_parallel = f"blk.0.{arch.sequential_by}.weight" not in tensors
    else:
        is_parallel = metadata.flag("use_parallel_residual", default=True)
    return "parallel" if is_parallel else "sequential"


def _check_spec(spec: ModelSpec, metadata: MetadataReader) -> None:
    value_dim = spec.head_dim if spec.mla else metadata.count("attention.value_length", spec.head_dim)
    local = [metadata.count(f"attention.{part}_length_swa", spec.head_dim) for part in ("key", "value")]
    rules = {
        "n_heads must be a multiple of n_kv_heads": spec.n_heads % spec.n_kv_heads == 0,
        f"head_dim must be at most {MAX_HEAD_DIM}": max(spec.head_dim, *local) <= MAX_HEAD_DIM,
        "key and value heads must have the same size": value_dim == spec.head_dim and local[0] == local[1],
        "norm epsilon must be finite and positive": 0.0 < spec.norm_eps < 1.0,
        "decoder_start_token_id must be in the vocabulary": spec.start_id < spec.vocab_size,
        "softcaps must not be negative": min(_softcaps(spec)) >= 0.0,
        "the limit of queries, keys and values must not be negative": spec.qkv_limit >= 0.0,
        "ALiBi's largest bias must not be negative": spec.max_alibi_bias >= 0.0,
        f"ALiBi's context_length times n_heads must be at most {MAX_ALIBI}": not spec.max_alibi_bias
        or spec.context_length * spec.n_heads <= MAX_ALIBI,
    }
    for name, rope in spec.ropes.items():
        rules |= _rope_rules(rope, _least_head_dim(spec, name))
    for rule, holds in rules.items():
        if not holds:
            heads = f"{spec.n_heads} heads and {spec.n_kv_heads} KV heads of {spec.head_dim}"
            ropes = ", ".join(f"rope dim {rope.dim}, theta {rope.theta:g}" for rope in spec.ropes.values())
            sizes = f"{heads}, value heads of {value_dim}, epsilon {spec.norm_eps:g}"
            found = f"{sizes}, {ropes or 'no rope'}"
            raise ModelFormatError(f"{spec.arch}: {rule}; found {found}", path=spec.name)


def _softcaps(spec: ModelSpec) -> list[float]:
    of_router = [spec.experts.softcap] if spec.experts else []
    return [spec.attention_softcap, spec.logit_softcap, *of_router]


def _least_head_dim(spec: ModelSpec, rope: str) -> int:
    """Floats of the smallest head that a rotation turns."""
    layers = [*spec.file_layers, *spec.layers]
    own = (spec.of_layer(layer).head_dim for layer in layers if layer.rope == rope.removesuffix(OF_QUERIES))
    return min(own, default=spec.head_dim)


def _rope_rules(rope: RopeSpec, head_dim: int) -> dict[str, bool]:
    is_even = rope.dim % 2 == 0 and rope.dim <= head_dim
    s = rope.scaling
    long_short = (s.long_factors, s.short_factors) if s and s.kind == "longrope" else ()
    return {
        "rope dim must be an even number, at most head_dim": is_even,
        "rope theta must be finite and more than 1": 1.0 < rope.theta < math.inf,
        "rope factors must be finite and positive, one per pair": not rope.factors
        or _are_valid(rope.factors, rope),
        "rope_factors_long and _short must be finite and positive, one per pair": all(
            _are_valid(factors, rope) for factors in long_short
        ),
        "rope scaling must be positive": not s or (s.factor > 0.0 and s.magnitude >= 0.0),
        "yarn betas must be positive": not s or min(s.beta_fast, s.beta_slow) > 0.0,
    }


def _are_valid(factors: tuple[float, ...], rope: RopeSpec) -> bool:
    return len(factors) == rope.dim // 2 and all(0.0 < factor < math.inf for factor in factors)
