"""Architectures as rows: what metadata, which tensors in which shapes, which blocks.

A same-family model is one row of `ARCHS`. Shapes are written in the letters of the glossary: C hidden,
Q query heads x head_dim, K key/value heads x head_dim, F ffn, V vocabulary, R rope dim / 2.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Generator, Mapping
from dataclasses import dataclass, field

from camelid.errors import ModelFormatError, TensorShapeError, UnsupportedModelError
from camelid.formats.gguf import Gguf, GgufTensor
from camelid.model.spec import LayerSpec, ModelSpec, RopeSpec
from camelid.plan.weights import Part, Weight

Shapes = Mapping[str, str]
PLAIN_LAYER = LayerSpec()

LLAMA_LAYER: Shapes = {
    "attn_norm": "C",
    "attn_q": "QC",
    "attn_k": "KC",
    "attn_v": "KC",
    "attn_output": "CQ",
    "ffn_norm": "C",
    "ffn_gate": "FC",
    "ffn_up": "FC",
    "ffn_down": "CF",
}
LLAMA_GLOBAL: Shapes = {"token_embd": "VC", "output_norm": "C"}
LLAMA_OPTIONAL: Shapes = {"output": "VC", "rope_freqs": "R"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Arch:
    """One architecture. `refused` maps metadata keys to the only value that this row understands."""

    layer: LayerSpec = PLAIN_LAYER
    rope_style: str = "norm"
    layer_tensors: Shapes = field(default_factory=lambda: LLAMA_LAYER)
    global_tensors: Shapes = field(default_factory=lambda: LLAMA_GLOBAL)
    optional_tensors: Shapes = field(default_factory=lambda: LLAMA_OPTIONAL)
    refused: Mapping[str, float | str] = field(
        default_factory=lambda: {
            "expert_count": 0,
            "rope.scaling.type": "none",
            "rope.scaling.factor": 1.0,
            "rope.scale_linear": 1.0,
            "attention.sliding_window": 0,
        }
    )


ARCHS: dict[str, Arch] = {"llama": Arch()}


@dataclass(frozen=True, slots=True)
class Model:
    """A spec and its weights, by GGUF name without the `.weight` ending."""

    spec: ModelSpec
    weights: Mapping[str, Weight]

    @property
    def weight_bytes(self) -> int:
        return sum(w.n_bytes for w in self.weights.values())


def read_model(gguf: Gguf, *, source: str = "model") -> Generator[tuple[int, int], bytes, Model]:
    """A model from a parsed GGUF. Asks for byte ranges of tensors that are facts rather than weights.

    Raises UnsupportedModelError for an architecture without a row, TensorShapeError for a tensor that is
    missing, misshapen or that no rule consumed, ModelFormatError for impossible metadata.
    """
    arch_name = gguf.get("general.architecture", str)
    arch = ARCHS.get(arch_name)
    if arch is None:
        known = ", ".join(sorted(ARCHS))
        raise UnsupportedModelError(
            f"architecture {arch_name!r} is not supported; supported: {known}",
            kind="architecture",
            name=arch_name,
            known=known,
        )
    factors = ()
    if "rope_freqs.weight" in gguf.tensors:
        factors = yield from _read_f32(gguf.tensors["rope_freqs.weight"])
    spec = _read_spec(gguf, arch_name, arch, factors)
    weights = {name: _weight(name, gguf, source, shape) for name, shape in _tensor_shapes(spec, arch, gguf)}
    _check_all_consumed(gguf, weights, arch_name)
    weights.pop("rope_freqs", None)  # its numbers are in the spec
    return Model(spec, weights)


def _read_f32(tensor: GgufTensor) -> Generator[tuple[int, int], bytes, tuple[float, ...]]:
    if tensor.type != "f32":
        raise TensorShapeError(
            f"{tensor.name}: type {tensor.type}, expected f32; convert the file again",
            name=tensor.name,
            got=tensor.type,
            want="f32",
        )
    raw = yield tensor.offset, tensor.n_bytes
    return struct.unpack(f"<{len(raw) // 4}f", raw)


def _read_spec(gguf: Gguf, name: str, arch: Arch, factors: tuple[float, ...]) -> ModelSpec:
    _check_refused(gguf, name, arch)
    n_layers, n_heads = _n_layers(gguf, name), _count(gguf, f"{name}.attention.head_count")
    hidden_size = _count(gguf, f"{name}.embedding_length")
    n_kv_heads = _count(gguf, f"{name}.attention.head_count_kv", n_heads)
    head_dim = _count(gguf, f"{name}.attention.key_length", hidden_size // n_heads)
    spec = ModelSpec(
        arch=name,
        name=gguf.get("general.name", str, default=name),
        n_layers=n_layers,
        n_heads=n_heads,
        n_kv_heads=n_kv_heads,
        head_dim=head_dim,
        hidden_size=hidden_size,
        ffn_size=_count(gguf, f"{name}.feed_forward_length"),
        vocab_size=_embedding(gguf).shape[0],
        context_length=_count(gguf, f"{name}.context_length"),
        norm_eps=gguf.get(f"{name}.attention.layer_norm_rms_epsilon", float),
        rope=RopeSpec(
            theta=gguf.get(f"{name}.rope.freq_base", float, default=10000.0),
            dim=_count(gguf, f"{name}.rope.dimension_count", head_dim),
            style=arch.rope_style,
            factors=factors,
        ),
        layers=(arch.layer,) * n_layers,
        is_tied="output.weight" not in gguf.tensors,
    )
    _check_spec(spec, gguf, name)
    return spec


def _check_refused(gguf: Gguf, name: str, arch: Arch) -> None:
    facts = {f"{name}.{key}": value for key, value in arch.refused.items()}
    for key, understood in {**facts, "split.count": 1}.items():
        value = gguf.metadata.get(key, understood)
        if value != understood:
            raise UnsupportedModelError(
                f"{key} is {value!r}, but only {understood!r} is supported for {name}",
                kind=key,
                name=value,
            )


def _n_layers(gguf: Gguf, name: str) -> int:
    """Layers, at most as many as tensors, so that a false count costs no memory."""
    n_layers = _count(gguf, f"{name}.block_count")
    if n_layers > len(gguf.tensors):
        raise ModelFormatError(
            f"{name}.block_count is {n_layers}, but the file has {len(gguf.tensors)} tensors; it is damaged",
            key=f"{name}.block_count",
        )
    return n_layers


def _count(gguf: Gguf, key: str, default: int | None = None) -> int:
    value = gguf.get(key, int) if default is None else gguf.get(key, int, default=default)
    if not 0 < value < 2**24:
        raise ModelFormatError(f"{key} is {value}, expected 1 to {2**24 - 1}; the file is damaged", key=key)
    return value


def _embedding(gguf: Gguf) -> GgufTensor:
    tensor = gguf.tensors.get("token_embd.weight")
    if tensor is None or len(tensor.shape) != 2:
        got = tensor.shape if tensor else "nothing"
        raise TensorShapeError(
            f"token_embd.weight: found {got}, expected a matrix [vocabulary, hidden]",
            name="token_embd",
            got=got,
        )
    return tensor


def _check_spec(spec: ModelSpec, gguf: Gguf, name: str) -> None:
    value_dim = gguf.get(f"{name}.attention.value_length", int, default=spec.head_dim)
    rope = spec.rope
    facts = {
        "n_heads must be a multiple of n_kv_heads": spec.n_heads % spec.n_kv_heads == 0,
        "key and value heads must have one size": value_dim == spec.head_dim,
        "rope must turn an even number of floats, at most head_dim": rope.dim % 2 == 0
        and rope.dim <= spec.head_dim,
        "norm epsilon must be finite and positive": 0.0 < spec.norm_eps < 1.0,
        "rope theta must be finite and positive": 0.0 < rope.theta < math.inf,
        "rope factors must be one a pair, finite and positive": _good_factors(rope),
    }
    for rule, holds in facts.items():
        if not holds:
            heads = f"heads {spec.n_heads}, {spec.n_kv_heads} of {spec.head_dim} and {value_dim}"
            found = f"{heads}, epsilon {spec.norm_eps:g}, rope {rope.dim} at {rope.theta:g}"
            raise ModelFormatError(f"{name}: {rule}; found {found}", path=spec.name)


def _good_factors(rope: RopeSpec) -> bool:
    positive = all(0.0 < factor < math.inf for factor in rope.factors)
    return positive and len(rope.factors) in (0, rope.dim // 2)


def _tensor_shapes(spec: ModelSpec, arch: Arch, gguf: Gguf) -> list[tuple[str, tuple[int, ...]]]:
    sizes = {
        "C": spec.hidden_size, "Q": spec.q_size, "K": spec.kv_size,
        "F": spec.ffn_size, "V": spec.vocab_size, "R": spec.rope.dim // 2,
    }  # fmt: skip
    optional = {n: s for n, s in arch.optional_tensors.items() if f"{n}.weight" in gguf.tensors}
    named = [*arch.global_tensors.items(), *optional.items()]
    for i in range(spec.n_layers):
        named += [(f"blk.{i}.{name}", letters) for name, letters in arch.layer_tensors.items()]
    return [(name, tuple(sizes[letter] for letter in letters)) for name, letters in named]


def _weight(name: str, gguf: Gguf, source: str, want: tuple[int, ...]) -> Weight:
    tensor = gguf.tensors.get(f"{name}.weight")
    if tensor is None or tensor.shape != want:
        got = tensor.shape if tensor else "nothing"
        raise TensorShapeError(
            f"{name}.weight: found {got}, expected shape {want}; "
            "was this file made for another architecture?",
            name=name,
            got=got,
            want=want,
        )
    part = Part(source, tensor.offset, tensor.n_bytes)
    return Weight(name=name, type=tensor.type, shape=tensor.shape, parts=(part,))


def _check_all_consumed(gguf: Gguf, weights: Mapping[str, Weight], arch_name: str) -> None:
    left = sorted(set(gguf.tensors) - {f"{name}.weight" for name in weights})
    if left:
        more = f" and {len(left) - 1} more" if len(left) > 1 else ""
        raise TensorShapeError(
            f"tensor {left[0]}{more}: no rule of architecture {arch_name!r} uses it, "
            "so results would be wrong",
            name=left[0],
            got=left[0],
            want="no further tensors",
        )
