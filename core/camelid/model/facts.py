"""From metadata to a `ModelSpec`: GGUF's keys, checked before anything is believed."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import TypeAlias

from camelid.errors import ModelFormatError, TensorShapeError, UnsupportedModelError
from camelid.model.arch import Arch, Model
from camelid.model.checkpoint import Checkpoint
from camelid.model.getters import Facts
from camelid.model.layer_facts import GLOBAL, LOCAL, read_layers
from camelid.model.mixer_facts import read_delta, read_ssm
from camelid.model.rope import yarn_magnitude
from camelid.model.spec import MAX_HEAD_DIM, ExpertsSpec, ModelSpec, RopeScaling, RopeSpec
from camelid.plan.weights import Weight

Factors: TypeAlias = Mapping[str, tuple[float, ...]]
FACTOR_TENSORS = ("rope_freqs", "rope_factors_long", "rope_factors_short")
SCALINGS = ("none", "linear", "yarn", "longrope")

# Metadata that would change the maths and that no row understands: key -> the values that change nothing.
REFUSED: Mapping[str, tuple[object, ...]] = {
    "attention.causal": (True,),
    "attention.clamp_kqv": (0.0,),
    "attention.max_alibi_bias": (0.0,),
    "attention.output_scale": (0.0, 1.0),
    "attention.q_lora_rank": (0,),
    "attention.kv_lora_rank": (0,),
    "attention.shared_kv_layers": (0,),
    "attention.temperature_scale": (0.0,),
    "expert_gating_func": (0, 1),  # not stated, softmax over all
    "expert_group_count": (0, 1),
    "expert_shared_count": (0,),
    "interleave_moe_layer_step": (0, 1),
    "moe_every_n_layers": (0, 1),
    "pooling_type": (0,),
    "rope.dimension_sections": (),
    "rope.scaling.alpha": (0.0,),
    "rope.scaling.yarn_ext_factor": (-1.0, 1.0),  # llama.cpp's "not stated", and in full
    "rope.scaling.yarn_log_multiplier": (0.0,),
    "router_logit_softcapping": (0.0,),
    "ssm.conv_kernel": (0,),
}
SCANS = ("mamba2", "delta")  # mixers whose sizes stand in ssm.*


def read_spec(checkpoint: Checkpoint, name: str, arch: Arch, factors: Factors) -> ModelSpec:
    """The spec that the metadata states; ModelFormatError or UnsupportedModelError where it cannot be."""
    facts = Facts(checkpoint.header, name)
    _check_refused(facts, arch)
    n_heads, hidden_size = facts.count("attention.head_count"), facts.count("embedding_length")
    head_dim = facts.count("attention.key_length", max(1, hidden_size // n_heads))  # of 0, no scale
    n_layers = _n_layers(facts, len(checkpoint.tensors))
    experts = _experts(facts)
    ropes = _ropes(facts, arch, head_dim, factors)
    layers = read_layers(facts, arch, n_layers, has_experts=experts is not None)
    mixers = {layer.mixer for layer in layers}
    spec = ModelSpec(
        arch=name,
        name=checkpoint.header.get("general.name", str, default=name),
        n_layers=n_layers,
        n_heads=n_heads,
        n_kv_heads=_n_kv_heads(facts, arch, n_layers, n_heads),
        head_dim=head_dim,
        hidden_size=hidden_size,
        ffn_size=facts.count("feed_forward_length"),
        vocab_size=_embedding(checkpoint.tensors).shape[0],
        context_length=facts.count("context_length"),
        norm_eps=facts.number(f"attention.layer_norm_{'rms_' if arch.norm_kind == 'rms' else ''}epsilon"),
        norm_kind=arch.norm_kind,
        ropes={name: rope for name, rope in ropes.items() if any(layer.rope == name for layer in layers)},
        layers=layers,
        is_tied="output.weight" not in checkpoint.tensors,
        experts=experts,
        ssm=read_ssm(facts) if "mamba2" in mixers else None,
        delta=read_delta(facts) if "delta" in mixers else None,
        attention_scale=_attention_scale(facts, arch, n_layers, hidden_size / n_heads, head_dim),
        attention_softcap=facts.number("attn_logit_softcapping", arch.softcaps[0]),
        logit_softcap=facts.number("final_logit_softcapping", arch.softcaps[1]),
        logit_scale=1.0 / (facts.number("logit_scale", 1.0) or 1.0),
        embedding_scale=facts.number("embedding_scale", hidden_size**0.5 if arch.scales_embeddings else 1.0),
        residual_scale=facts.number("residual_scale", 1.0),
    )
    _check_spec(spec, facts)
    return spec


def at_context(model: Model, context_length: int) -> Model:
    """The model for a shorter context: tables get smaller, and LongRoPE chooses its factors by it."""
    return replace(model, spec=replace(model.spec, context_length=context_length))


def _check_refused(facts: Facts, arch: Arch) -> None:
    known = {"ssm.conv_kernel"} if {*SCANS} & {*arch.mixers} else set[str]()
    refused = {facts.key(name): values for name, values in REFUSED.items() if name not in known}
    understood = refused | {"split.count": (0, 1)}
    for key, values in understood.items():
        value = facts.gguf.metadata.get(key)
        if value is not None and value not in values:
            raise UnsupportedModelError(
                f"{key} is {value!r}, which is not supported for {facts.prefix}; "
                f"understood: {', '.join(map(repr, values)) or 'nothing'}",
                kind=key,
                name=value,
            )


def _n_layers(facts: Facts, n_tensors: int) -> int:
    """Layers, at most as many as tensors, so that a false count costs no memory."""
    n_layers = facts.count("block_count")
    if n_layers > n_tensors:
        facts.fail("block_count", f"is {n_layers}, but the file has {n_tensors} tensors; it is damaged")
    return n_layers


def _n_kv_heads(facts: Facts, arch: Arch, n_layers: int, n_heads: int) -> int:
    """The one number of the layers that have keys and values; as many as heads where none has."""
    name = "attention.head_count_kv"
    if len(arch.mixers) == 1:
        return facts.count(name, n_heads)
    stated = {n for n in facts.counts(name, n_layers, n_heads) if n}
    if len(stated) > 1:
        raise UnsupportedModelError(
            f"{facts.key(name)} is {sorted(stated)} in layers with keys and values; one number is understood",
            kind=facts.key(name),
            name=str(sorted(stated)),
        )
    return next(iter(stated), n_heads)


def _embedding(tensors: Mapping[str, Weight]) -> Weight:
    tensor = tensors.get("token_embd.weight")
    if tensor is None or len(tensor.shape) != 2:
        got = tensor.shape if tensor else "nothing"
        raise TensorShapeError(
            f"token_embd.weight: found {got}, expected a matrix [vocabulary, hidden]",
            name="token_embd",
            got=got,
        )
    return tensor


def _experts(facts: Facts) -> ExpertsSpec | None:
    n_experts = facts.count("expert_count", 0, least=0)
    if not n_experts:
        return None
    n_used = facts.count("expert_used_count")
    if n_used > n_experts:
        facts.fail("expert_used_count", f"is {n_used}, but there are {n_experts} experts")
    ffn_size = facts.count("expert_feed_forward_length", facts.count("feed_forward_length"))
    normalize = facts.flag("expert_weights_norm", default=True)
    scale = facts.number("expert_weights_scale", 1.0) or 1.0
    return ExpertsSpec(
        n_experts=n_experts,
        n_used=n_used,
        ffn_size=ffn_size,
        normalize=normalize,
        scale=scale,
        shared_size=facts.count("expert_shared_feed_forward_length", 0, least=0),
    )


def _attention_scale(facts: Facts, arch: Arch, n_layers: int, width: float, head_dim: int) -> float:
    """As stated; else head_dim^-0.5, but for the one size of its family that spreads hidden over heads."""
    plain = width**-0.5 if n_layers == arch.wide_layers else head_dim**-0.5
    return facts.number("attention.scale", plain) or plain


def _ropes(facts: Facts, arch: Arch, head_dim: int, factors: Factors) -> dict[str, RopeSpec]:
    if not arch.rope_style:
        return {}
    rope = RopeSpec(
        theta=facts.number("rope.freq_base", 10000.0),
        dim=facts.count("rope.dimension_count", head_dim),
        style=arch.rope_style,
        factors=factors.get("rope_freqs", ()),
        scaling=_scaling(facts, factors),
    )
    if not arch.has_local_rope:
        return {GLOBAL: rope}
    local = facts.number("rope.freq_base_swa", arch.local_theta or rope.theta)
    return {GLOBAL: rope, LOCAL: replace(rope, theta=local, scaling=None, factors=())}


def _scaling(facts: Facts, factors: Factors) -> RopeScaling | None:
    # 0 means unscaled, as in llama.cpp.
    factor = facts.number("rope.scaling.factor", facts.number("rope.scale_linear", 1.0)) or 1.0
    default = "none" if factor == 1.0 else "linear"  # what llama.cpp takes a bare factor for
    stated = facts.gguf.get(facts.key("rope.scaling.type"), str, default=default)
    kind = "longrope" if "rope_factors_long" in factors else stated
    if kind not in SCALINGS:
        raise UnsupportedModelError(
            f"{facts.key('rope.scaling.type')} is {kind!r}; understood: {', '.join(SCALINGS)}",
            kind=facts.key("rope.scaling.type"),
            name=kind,
        )
    if kind == "none":
        return None
    original = facts.count("rope.scaling.original_context_length", facts.count("context_length"))
    return RopeScaling(
        kind=kind,
        factor=factor,
        original_context=original,
        beta_fast=facts.number("rope.scaling.yarn_beta_fast", 32.0),
        beta_slow=facts.number("rope.scaling.yarn_beta_slow", 1.0),
        magnitude=_magnitude(facts, kind, factor),
        long_factors=factors.get("rope_factors_long", ()),
        short_factors=factors.get("rope_factors_short", ()),
    )


def _magnitude(facts: Facts, kind: str, factor: float) -> float:
    """The file's factor; it multiplies YaRN's own."""
    usual = yarn_magnitude(factor) if kind == "yarn" else 1.0
    _check_yarn_factor(facts, usual)
    return usual * facts.number("rope.scaling.attn_factor", 1.0)


def _check_yarn_factor(facts: Facts, usual: float) -> None:
    """Converters of 2025 write what config.json calls attention_factor, which llama.cpp computes anew."""
    key = "rope.scaling.yarn_attn_factor"
    stated = facts.number(key, usual)
    if not min(abs(stated - usual), abs(stated - 1.0)) < 1e-3:
        raise UnsupportedModelError(
            f"{facts.key(key)} is {stated:g}, which is not supported; understood: 1 and {usual:g}",
            kind=facts.key(key),
            name=f"{stated:g}",
        )


def _check_spec(spec: ModelSpec, facts: Facts) -> None:
    value_dim = facts.count("attention.value_length", spec.head_dim)
    rules = {
        "n_heads must be a multiple of n_kv_heads": spec.n_heads % spec.n_kv_heads == 0,
        f"heads must have at most {MAX_HEAD_DIM} floats": spec.head_dim <= MAX_HEAD_DIM,
        "key and value heads must have one size": value_dim == spec.head_dim,
        "norm epsilon must be finite and positive": 0.0 < spec.norm_eps < 1.0,
        "softcaps must not be negative": min(spec.attention_softcap, spec.logit_softcap) >= 0.0,
    }
    for rope in spec.ropes.values():
        rules |= _rope_rules(rope, spec.head_dim)
    for rule, holds in rules.items():
        if not holds:
            heads = f"heads {spec.n_heads}, {spec.n_kv_heads} of {spec.head_dim} and {value_dim}"
            ropes = ", ".join(f"rope {rope.dim} at {rope.theta:g}" for rope in spec.ropes.values())
            found = f"{heads}, epsilon {spec.norm_eps:g}, {ropes or 'no rope'}"
            raise ModelFormatError(f"{spec.arch}: {rule}; found {found}", path=spec.name)


def _rope_rules(rope: RopeSpec, head_dim: int) -> dict[str, bool]:
    is_even = rope.dim % 2 == 0 and rope.dim <= head_dim
    s = rope.scaling
    stretches = (s.long_factors, s.short_factors) if s and s.kind == "longrope" else ()
    return {
        "rope must turn an even number of floats, at most head_dim": is_even,
        "rope theta must be finite and more than 1": 1.0 < rope.theta < math.inf,
        "rope factors must be one a pair, finite and positive": not rope.factors
        or _good_factors(rope.factors, rope),
        "rope_factors_long and _short must be one a pair, finite and positive": all(
            _good_factors(factors, rope) for factors in stretches
        ),
        "rope scaling must be positive": not s or (s.factor > 0.0 and s.magnitude >= 0.0),
        "yarn betas must be positive": not s or min(s.beta_fast, s.beta_slow) > 0.0,
    }


def _good_factors(factors: tuple[float, ...], rope: RopeSpec) -> bool:
    return len(factors) == rope.dim // 2 and all(0.0 < factor < math.inf for factor in factors)
