"""The choice of every tensor's type: mix, wishes of the user, fallbacks for shapes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count

from camelid.formats.quants import QUANTS
from camelid.loading.quantize.mixes import MIXES, NEEDS_IMATRIX, Mix
from camelid.loading.quantize.rules import Facts, Place

OUTPUT, EMBEDDING = "output.weight", "token_embd.weight"
EMBEDDINGS = (EMBEDDING, "per_layer_token_embd.weight")
# Text in a name -> the part with rules of its own; the first counts. Values may be fused with others.
PARTS = {
    **dict.fromkeys(("attn_v.weight", "attn_qkv.weight", "attn_kv_b.weight"), "attn_v"),
    **{f"{part}.weight": part for part in ("attn_k", "attn_q", "attn_output")},
    **{part: part for part in ("ffn_down", "ffn_gate", "ffn_up")},
}
# Parts whose place is read from the name if there are experts, which have several such tensors a layer.
BY_NAME = ("ffn_down", "ffn_gate", "ffn_up")
# Never quantized: routers, positions, and small tensors whose errors cost the most.
KEPT = (
    *("_norm.weight", "ffn_gate_inp.weight", "position_embd.weight", "token_types.weight", "pos_embd"),
    *("altup", "laurel", "per_layer_model_proj", "ssm_conv1d", "shortconv.conv.weight", "attn_rel_b.weight"),
    *(f"time_mix_{name}.weight" for name in ("first", "w0", "w1", "w2", "v0", "v1", "v2", "a0", "a1", "a2")),
    *(f"time_mix_{name}.weight" for name in ("g1", "g2", "decay_w1", "decay_w2", "lerp_fused")),
)
# Type -> the type for rows that its blocks do not divide.
FALLBACKS = {
    **dict.fromkeys(("q2_k", "q3_k", "tq1_0", "tq2_0", "q1_0", "q2_0"), "q4_0"),
    **dict.fromkeys(("iq1_s", "iq1_m", "iq2_xxs", "iq2_xs", "iq2_s", "iq3_xxs", "iq3_s", "iq4_xs"), "iq4_nl"),
    "q4_k": "q5_0",
    "q5_k": "q5_1",
    "q6_k": "q8_0",
}
# (architecture, layers) of the models that llama.cpp calls 70B; 80 layers of LLAMA only with shared heads.
SEVENTY_B = {("qwen2", 80), ("deci", 80), ("olmo", 80), ("jais2", 68)}
LLAMA = ("llama", "llama-embed")
LAYER = re.compile(r"blk\.(\d+)\.")


@dataclass(frozen=True, slots=True)
class Named:
    """A tensor of the source: name, type and row-major shape."""

    name: str
    type: str
    shape: tuple[int, ...]

    @property
    def is_matrix(self) -> bool:
        """True with more than one row."""
        return len(self.shape) > 1 and any(n > 1 for n in self.shape[:-1])


@dataclass(frozen=True, slots=True, kw_only=True)
class Wishes:
    """Wishes of the user: one type everywhere; types of output and embedding ("" for the mix's); the output
    kept as it is; (pattern, type) of names, of which the first that is found in a name holds."""

    pure: bool = False
    output: str = ""
    embedding: str = ""
    keep_output: bool = False
    patterns: tuple[tuple[str, str], ...] = ()


def choose_types(
    tensors: Sequence[Named], mix_name: str, facts: Facts, wishes: Wishes | None = None
) -> dict[str, str]:
    """The type of every tensor, by name, in the order of `tensors`."""
    chooser = _Chooser(MIXES[mix_name], mix_name, facts, wishes or Wishes(), _has_output(tensors))
    ordered = sorted(tensors, key=lambda each: (layer_of(each.name), each.name))
    places = dict(_places(ordered, facts))
    chosen = {each.name: chooser.type_of(each, places.get(each.name)) for each in ordered}
    return {each.name: chosen[each.name] for each in tensors}


def missing_imatrix(
    types: Mapping[str, str], mix_name: str, has: Iterable[str], keeps: Iterable[str]
) -> list[str]:
    """Names of tensors whose types need an importance matrix and that it lacks; `keeps` are not encoded."""
    needs = {*NEEDS_IMATRIX, "q2_k"} if mix_name == "q2_k_s" else NEEDS_IMATRIX
    exempt = {OUTPUT, EMBEDDING, *has, *keeps}
    return [name for name, kind in types.items() if kind in needs and name not in exempt]


def layer_of(name: str) -> int:
    """The layer of a name, -1 outside layers."""
    found = LAYER.match(name)
    return int(found[1]) if found else -1


def part_of(name: str) -> str:
    """The part with rules of its own; "" for other tensors."""
    return next((part for text, part in PARTS.items() if text in name), "")


def _has_output(tensors: Sequence[Named]) -> bool:
    return any(each.name == OUTPUT for each in tensors)


def _places(ordered: Sequence[Named], facts: Facts) -> Iterable[tuple[str, Place]]:
    """Places of the tensors with rules."""
    parts = {each.name: part_of(each.name) for each in ordered if may_quantize(each)}
    counters = {part: count() for part in {*parts.values()}}
    for name, part in parts.items():
        order = next(counters[part])
        is_by_name = part in BY_NAME
        i = layer_of(name) if is_by_name and facts.experts > 1 else order
        n = facts.layers if is_by_name else sum(other == part for other in parts.values())
        yield name, Place(i, n, order, facts)


def may_quantize(tensor: Named) -> bool:
    """False for tensors that every mix keeps as they are."""
    name = tensor.name
    return name.endswith("weight") and tensor.is_matrix and not any(kept in name for kept in KEPT)


@dataclass(frozen=True, slots=True)
class _Chooser:
    mix: Mix
    mix_name: str
    facts: Facts
    wishes: Wishes
    has_output: bool

    def type_of(self, tensor: Named, place: Place | None) -> str:
        name = tensor.name
        if not may_quantize(tensor) or (self.wishes.keep_output and name == OUTPUT):
            return tensor.type
        wanted = self._wished(name) or (self.mix.type if self.wishes.pure else self._of_mix(tensor, place))
        return fitting(wanted, tensor.shape[-1])

    def _wished(self, name: str) -> str:
        if self._makes_logits(name) and self.wishes.output:
            return self.wishes.output
        if name in EMBEDDINGS and self.wishes.embedding:
            return self.wishes.embedding
        found = (kind for pattern, kind in self.wishes.patterns if re.search(pattern, name))
        return next(found, "")

    def _makes_logits(self, name: str) -> bool:
        return name == OUTPUT or (name in EMBEDDINGS and not self.has_output)

    def _of_mix(self, tensor: Named, place: Place | None) -> str:
        if self.mix_name == "mxfp4_moe":
            return "mxfp4" if len(tensor.shape) > 2 and tensor.shape[-3] > 1 else "q8_0"
        if self._makes_logits(tensor.name):
            return self._output(tensor.shape[-1])
        if tensor.name in EMBEDDINGS:
            return self.mix.embedding or self.mix.type
        rule = self.mix.rules.get(part_of(tensor.name))
        return (rule(place) if rule and place else "") or self.mix.type

    def _output(self, cols: int) -> str:
        if not self.mix.output:
            return self.mix.type
        return "q8_0" if self.facts.arch == "falcon" or cols % 256 else self.mix.output


def fitting(name: str, cols: int) -> str:
    """The type, or the first fallback whose blocks divide a row; f16 if none does."""
    if cols % QUANTS[name].block == 0:
        return name
    other = FALLBACKS.get(name, "f16")
    return other if cols % QUANTS[other].block == 0 else "f16"


def is_70b(arch: str, layers: int, heads: int, kv_heads: int) -> bool:
    """True for the shapes that llama.cpp calls 70B."""
    return (arch, layers) in SEVENTY_B or (arch in LLAMA and layers == 80 and heads != kv_heads)
