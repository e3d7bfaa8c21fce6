"""From config.json to GGUF's metadata: keys, rotations, windows, experts."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

from camelid.errors import UnsupportedModelError
from camelid.formats.gguf_header import MetadataValue
from camelid.formats.hf_config import Config
from camelid.model.arch import Arch
from camelid.model.archs import ARCHS
from camelid.model.hf_rows import HfRow
from camelid.model.layer_facts import all_but
from camelid.model.rope import yarn_magnitude
from camelid.model.spec import MAX_HEAD_DIM

Metadata: TypeAlias = dict[str, MetadataValue]

# Activations by their published names. "gelu" alone is the exact one.
ACTS: Mapping[str, str] = {
    "silu": "silu", "swish": "silu", "gelu": "gelu_erf", "gelu_new": "gelu", "gelu_pytorch_tanh": "gelu",
    "gelu_fast": "gelu", "relu": "relu", "relu2": "relu2",
}  # fmt: skip
COUNTS = ("embedding_length", "block_count", "attention.head_count", "context_length")
REFUSED: Mapping[str, tuple[object, ...]] = {"clip_qkv": (), "quantization_config": (), "is_decoder": (True,)}
SLIDING, FULL = "sliding_attention", "full_attention"
ATTENDS, RECURRENT = ("attention", FULL), ("mamba", "linear_attention")
MAX_EXPERTS = 1 << 12  # the largest published have 512


@dataclass(frozen=True)
class Facts:
    """Settings and their row, with the numbers that several parts need. Without slots, for its caches."""

    config: Config
    row: HfRow
    n_tensors: int  # no model has more layers or experts than tensors, so false counts cost nothing

    @property
    def arch(self) -> Arch:
        return ARCHS[self.row.arch]

    def count(self, key: str, default: int | None = None) -> int:
        """A count by its GGUF key."""
        name = self.row.keys[key]
        return self.config.count(name) if default is None else self.config.count(name, default)

    @cached_property
    def n_layers(self) -> int:
        return self.config.count(self.row.keys["block_count"], most=self.n_tensors)

    @cached_property
    def n_heads(self) -> int:
        return self.count("attention.head_count")

    @cached_property
    def n_kv_heads(self) -> int:
        return self.count("attention.head_count_kv", self.n_heads)

    @cached_property
    def head_dim(self) -> int:
        spread = max(self.count("embedding_length") // self.n_heads, 1)
        return self.config.count("head_dim", min(spread, MAX_HEAD_DIM), most=MAX_HEAD_DIM)

    @cached_property
    def n_experts(self) -> int:
        names = ("num_local_experts", "num_experts")
        most = max(self.n_tensors // self.n_layers, 1) if self.counts_experts else MAX_EXPERTS
        stated = (self.config.count(name, least=0, most=most) for name in names if self.config.has(name))
        return next(stated, 0)

    @property
    def counts_experts(self) -> bool:
        """Whether each expert has tensors of its own, in every layer."""
        return any("{e}" in name for name in self.row.names.values())

    @property
    def names(self) -> Mapping[str, str]:
        """Published names inside a layer by GGUF name, feed-forward block included."""
        mlp = "experts" if self.n_experts else self.arch.mlp
        return {**self.row.names, **self.row.mlp_names.get(mlp, {})}

    @cached_property
    def is_tied(self) -> bool:
        return self.config.flag("tie_word_embeddings", self.row.is_tied)

    @cached_property
    def rope(self) -> Config:
        """Settings of the (global) rotation: rope_parameters, or the older rope_scaling."""
        new = self.config.section("rope_parameters")
        new = new.section(FULL) if new.has(FULL) else new
        return new if new.values else self.config.section("rope_scaling")

    @cached_property
    def theta(self) -> float:
        default = self.config.number("rope_theta", 10000.0, above=1.0)
        return self.rope.number("rope_theta", default, above=1.0)

    @cached_property
    def rope_dim(self) -> int:
        share = self.config.number("partial_rotary_factor", 1.0, above=0.0, most=1.0)
        return int(self.head_dim * self.rope.number("partial_rotary_factor", share, above=0.0, most=1.0))


def hf_metadata(facts: Facts, *, name: str) -> Metadata:
    """GGUF's metadata for the model, without its tokenizer."""
    _check_refused(facts)
    arch = facts.row.arch
    own = {f"{arch}.{key}": value for part in PARTS for key, value in part(facts)}
    return {"general.architecture": arch, "general.name": name, **own}


Pairs: TypeAlias = Iterator[tuple[str, MetadataValue]]


def _sizes(facts: Facts) -> Pairs:
    yield from ((key, facts.count(key)) for key in COUNTS)
    yield "feed_forward_length", _ffn_size(facts)
    yield from _kv_heads(facts)
    yield "attention.key_length", facts.head_dim
    yield "attention.value_length", facts.head_dim
    kind = "rms_" if facts.arch.norm_kind == "rms" else ""
    default = 1e-6 if kind else 1e-5
    yield f"attention.layer_norm_{kind}epsilon", facts.config.number(facts.row.keys["norm_eps"], default)


def _ffn_size(facts: Facts) -> int:
    """The width of a dense block; of models that share an expert, that expert is the dense block."""
    shared = facts.row.counts.get("expert_shared_feed_forward_length")
    if shared and facts.row.mlp_names and not facts.n_experts:
        return facts.config.count(shared)
    return facts.count("feed_forward_length", 4 * facts.count("embedding_length"))


def _kv_heads(facts: Facts) -> Pairs:
    """One number; of a hybrid one a layer, 0 for a scan, or one beside the interval of attention."""
    if len(facts.arch.mixers) == 1:
        yield "attention.head_count_kv", facts.n_kv_heads
        return
    attends, every = _attends(facts), facts.arch.full_attention_interval
    if not every:
        yield "attention.head_count_kv", [facts.n_kv_heads if does else 0 for does in attends]
        return
    every = attends.index(True) + 1 if True in attends else facts.n_layers + 1
    if attends != [not is_recurrent for is_recurrent in all_but(every, facts.n_layers)]:
        raise _unsupported("layer_types", "of another order", (f"{FULL} every so many layers",))
    yield "attention.head_count_kv", facts.n_kv_heads
    yield "full_attention_interval", every


def _attends(facts: Facts) -> list[bool]:
    """True for layers with keys and values: as layer_types has them, else at an interval, else none."""
    config, every = facts.config, facts.arch.full_attention_interval
    if every and not config.has("layer_types"):
        every = config.count("full_attention_interval", every)
        return [not is_recurrent for is_recurrent in all_but(every, facts.n_layers)]
    types = config.texts("layer_types") or [RECURRENT[0]] * facts.n_layers
    other = {*types} - {*ATTENDS, *RECURRENT}
    if other or len(types) != facts.n_layers:
        raise _unsupported("layer_types", min(other, default=f"{len(types)} items"), (*ATTENDS, *RECURRENT))
    return [kind in ATTENDS for kind in types]


def _counts(facts: Facts) -> Pairs:
    yield from ((key, facts.config.count(name)) for key, name in facts.row.counts.items())
    for key, names in facts.row.products.items():
        yield key, math.prod(facts.config.count(name) for name in names)


def _numbers(facts: Facts) -> Pairs:
    for key, name in facts.row.numbers.items():
        if facts.config.has(name):
            yield key, facts.config.number(name)
        elif name in facts.row.defaults:  # null where absent would mean a number
            yield key, 0.0
    if facts.config.has("query_pre_attn_scalar"):
        yield "attention.scale", facts.config.number("query_pre_attn_scalar", above=0.0) ** -0.5


def _act(facts: Facts) -> Pairs:
    key = facts.row.keys["hidden_activation"]
    name = facts.config.text(key, "") or facts.config.text("hidden_act", "")
    if name and name not in ACTS:
        raise _unsupported(key, name, ACTS)
    if name and ACTS[name] != facts.arch.act:
        yield "hidden_activation", ACTS[name]


def _experts(facts: Facts) -> Pairs:
    if not facts.n_experts:
        return
    yield "expert_count", facts.n_experts
    yield "expert_used_count", facts.config.count("num_experts_per_tok")
    if facts.config.has("moe_intermediate_size"):
        yield "expert_feed_forward_length", facts.config.count("moe_intermediate_size")
    if not facts.config.flag("norm_topk_prob", True):
        yield "expert_weights_norm", False


def _windows(facts: Facts) -> Pairs:
    config = facts.config
    is_on = not facts.row.has_window_switch or config.flag("use_sliding_window", False)
    windowed = _windowed(facts) if is_on and config.has("sliding_window") else []
    if facts.arch.window and not any(windowed):  # left out, it would mean that one
        yield "attention.sliding_window", 0
    elif any(windowed):
        yield "attention.sliding_window", config.count("sliding_window")
        if windowed != all_but(facts.arch.window_pattern, facts.n_layers):
            yield "attention.sliding_window_pattern", windowed


def _windowed(facts: Facts) -> list[bool]:
    """Which layers see a window only."""
    config, n_layers = facts.config, facts.n_layers
    if config.has("layer_types"):
        types = config.texts("layer_types")
        other = {*types} - {SLIDING, FULL}
        if other or len(types) != n_layers:
            raise _unsupported("layer_types", min(other, default=f"{len(types)} items"), (SLIDING, FULL))
        return [kind == SLIDING for kind in types]
    if facts.row.has_window_switch:
        first = config.count("max_window_layers", 0, least=0)
        return [i >= first for i in range(n_layers)]
    return all_but(config.count("sliding_window_pattern", facts.arch.window_pattern, least=0), n_layers)


def _unturned(facts: Facts) -> Pairs:
    """Layers without rotation."""
    if "position_embedding_type" in facts.row.defaults:
        yield "rope.scaling.finetuned", facts.config.text("position_embedding_type", "") == "rope"
    if not facts.config.has("no_rope_layers") and not facts.config.has("no_rope_layer_interval"):
        return
    every = facts.config.count("no_rope_layer_interval", 4)
    stated = facts.config.counts("no_rope_layers", most=1)
    turned = [flag == 1 for flag in stated] or all_but(every, facts.n_layers)
    if turned != all_but(facts.arch.nope_every, facts.n_layers):
        yield "rope.layers", turned


def _rotation(facts: Facts) -> Pairs:
    if not facts.arch.rope_style:
        return
    yield "rope.freq_base", facts.theta
    yield "rope.dimension_count", facts.rope_dim
    if facts.arch.has_local_rope:
        yield "rope.freq_base_swa", _local_theta(facts)
    yield from _stretch(facts)


def _local_theta(facts: Facts) -> float:
    """Of the layers with a window, which no architecture stretches."""
    local = facts.config.section("rope_parameters").section(SLIDING)
    kind = local.text("rope_type", "default")
    if kind != "default":
        raise _unsupported(f"rope_parameters.{SLIDING}.rope_type", kind, ("default",))
    stated = facts.config.number("rope_local_base_freq", facts.arch.local_theta or facts.theta, above=0.0)
    return local.number("rope_theta", stated, above=0.0)


def _kind(facts: Facts) -> str:
    kind = facts.rope.text("rope_type", "") or facts.rope.text("type", "default")
    known = ("default", "linear", "yarn", "longrope", "su", "llama3")
    if kind not in known:
        raise _unsupported("rope_type", kind, known)
    return {"su": "longrope"}.get(kind, kind)


def _stretch(facts: Facts) -> Pairs:
    kind, rope = _kind(facts), facts.rope
    if kind in ("default", "llama3"):
        return
    yield "rope.scaling.type", kind
    if kind == "longrope":
        yield "rope.scaling.original_context_length", _original(facts)
        yield "rope.scaling.attn_factor", _longrope_magnitude(facts)
        return
    factor = rope.number("factor", above=0.0)
    yield "rope.scaling.factor", factor
    if kind == "yarn":
        yield from _yarn(facts, factor)


def _yarn(facts: Facts, factor: float) -> Pairs:
    rope = facts.rope
    if not rope.flag("truncate", True) or rope.has("mscale"):
        raise _unsupported("rope_scaling", "truncate or mscale", ("yarn without them",))
    yield "rope.scaling.original_context_length", _original(facts)
    yield "rope.scaling.yarn_beta_fast", rope.number("beta_fast", 32.0, above=0.0)
    yield "rope.scaling.yarn_beta_slow", rope.number("beta_slow", 1.0, above=0.0)
    if rope.has("attention_factor"):  # GGUF's factor multiplies the usual magnitude
        yield "rope.scaling.attn_factor", rope.number("attention_factor") / yarn_magnitude(factor)


def _original(facts: Facts) -> int:
    key = "original_max_position_embeddings"
    stated = facts.rope.count(key, facts.count("context_length"))
    return facts.config.count(key, stated)


def _longrope_magnitude(facts: Facts) -> float:
    """sqrt(1 + ln(stretch) / ln(original context)) (arXiv 2402.13753)."""
    original = _original(facts)
    stretch = facts.rope.number("factor", facts.count("context_length") / original, above=0.0)
    usual = math.sqrt(1.0 + math.log(stretch) / math.log(original)) if stretch > 1.0 and original > 1 else 1.0
    return facts.rope.number("attention_factor", usual)


def rope_factors(facts: Facts) -> dict[str, Sequence[float]]:
    """Tensors of factors that GGUF keeps beside the metadata."""
    if not facts.arch.rope_style:
        return {}
    kind = _kind(facts)
    if kind == "llama3":
        return {"rope_freqs.weight": _llama3_factors(facts)}
    if kind == "longrope":
        names = {"rope_factors_long.weight": "long_factor", "rope_factors_short.weight": "short_factor"}
        return {name: _number_list(facts.rope, key) for name, key in names.items()}
    return {}


def _number_list(config: Config, key: str) -> list[float]:
    items = config.get_list(key)
    return [Config({key: item}, config.path, config.prefix).number(key) for item in items] or [0.0]


def _llama3_factors(facts: Facts) -> list[float]:
    """Slow pairs are divided by the factor, fast ones by nothing, those between by a blend (Llama 3.1)."""
    rope, original = facts.rope, _original(facts)
    factor = rope.number("factor", above=0.0)
    low, high = rope.number("low_freq_factor", above=0.0), rope.number("high_freq_factor", above=0.0)
    turns = [
        original * facts.theta ** (-2.0 * i / facts.rope_dim) / (2.0 * math.pi)
        for i in range(facts.rope_dim // 2)
    ]
    shares = [min(max((n - low) / max(high - low, 1e-9), 0.0), 1.0) for n in turns]  # 1: as fast as before
    return [1.0 / ((1.0 - share) / factor + share) for share in shares]


def _check_refused(facts: Facts) -> None:
    for key, understood in {**REFUSED, **facts.row.refused}.items():
        value = facts.config.values.get(key)
        if value is not None and value not in understood:
            raise _unsupported(key, value, understood)


def _unsupported(key: str, value: object, known: Iterable[object]) -> UnsupportedModelError:
    shown = ", ".join(map(str, known))
    return UnsupportedModelError(
        f"config.json: {key} is {value!r}, which is not supported; understood: {shown or 'nothing'}",
        kind=key,
        name=str(value),
    )


PARTS: tuple[Callable[[Facts], Pairs], ...] = (
    _sizes, _counts, _numbers, _act, _experts, _windows, _unturned, _rotation,
)  # fmt: skip
