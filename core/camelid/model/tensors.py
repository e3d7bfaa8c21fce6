"""Weights of a checkpoint, matched to the tensors that its architecture's row requires."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from itertools import accumulate, dropwhile

from camelid.errors import TensorShapeError, UnsupportedModelError
from camelid.model.arch import ABSENT, ELEMENTWISE, KV_TENSORS, MIXED, NO_ENDING, Arch, Shapes
from camelid.model.checkpoint import Checkpoint
from camelid.model.latent import split_kv_b
from camelid.model.metadata_reader import MetadataReader
from camelid.model.spec import DeltaSpec, LayerSpec, MlaSpec, ModelSpec, RwkvSpec, SsmSpec
from camelid.model.spec_reader import FACTOR_TENSORS
from camelid.plan.weights import Weight, as_f32, cut_each, inline_f32, take_rows

Shape = tuple[int, ...]
Layers = Mapping[str, LayerSpec]  # by the prefix of their tensors
CHUNKS = ("_chexps",)
N_MIXED = 5  # rows of RWKV-7's `time_mix_lerp_fused`: for r, w, k, v, a, and g if the model has gates
OUTPUT_NORM = "output_norm"
SEQUENTIAL = ("ffn_norm",)  # tensors that a sequential layer requires of an architecture with other residuals
LAYER = re.compile(r"((enc|dec)\.)?blk\.\d+\.")
SINGLE_EXPERT = re.compile(r"blk\.\d+\.ffn_(gate|up|down)\.\d+\.weight")


def match_tensors(checkpoint: Checkpoint, spec: ModelSpec, arch: Arch) -> dict[str, Weight]:
    """Weights by GGUF name without `.weight`, fused tensors cut into their parts.

    Raises TensorShapeError for a missing, misshapen or unused tensor, UnsupportedModelError for a file with
    one tensor per expert.
    """
    _check_stacked(checkpoint.tensors)
    tensors = split_tensors(checkpoint.tensors, spec, arch)
    if spec.mla:
        tensors = split_kv_b(tensors, spec.n_heads, spec.head_dim - spec.mla.rope_dim, spec.mla.value_dim)
    shapes = tensor_shapes(spec, arch, tensors)
    weights = {_short(name): _checked(name, tensors, want) for name, want in shapes.items()}
    weights |= {n: _shared(w, spec) for n, w in weights.items() if n.endswith(CHUNKS)}
    unread = {*_more_tokens(checkpoint, spec)} | {f"{n}.weight" for n in FACTOR_TENSORS}
    _check_all_consumed({*tensors} - unread, {*shapes}, spec.arch)
    return weights | _ones(spec, arch) | (_xielu(checkpoint, spec) if arch.act == "xielu" else {})


def _shared(weight: Weight, spec: ModelSpec) -> Weight:
    """The stack with the matrix of each chunk once per expert, so that experts choose it by their number."""
    n = spec.experts.chunk_experts if spec.experts else 1
    return take_rows(weight, weight.name, [(i // n, 1) for i in range(weight.shape[0] * n)])


def _ones(spec: ModelSpec, arch: Arch) -> dict[str, Weight]:
    """The vectors of `arch.ones`, which no file stores."""
    layered = [name for name in arch.ones if name != OUTPUT_NORM]
    names = [f"blk.{i}.{name}" for i in range(spec.n_layers) for name in layered]
    names += [OUTPUT_NORM] if OUTPUT_NORM in arch.ones else []
    return {name: inline_f32(name, [1.0] * spec.hidden_size, (spec.hidden_size,)) for name in names}


def _xielu(checkpoint: Checkpoint, spec: ModelSpec) -> dict[str, Weight]:
    """xIELU's parameters of each layer, which are metadata; softplus keeps both alphas positive."""
    metadata = MetadataReader(checkpoint.header, "xielu")
    columns = [metadata.numbers(name, spec.n_layers) for name in ("alpha_p", "alpha_n", "beta", "eps")]
    made = [[_softplus(p), b + _softplus(n), b, e] for p, n, b, e in zip(*columns, strict=True)]
    return {f"blk.{i}.xielu": inline_f32(f"blk.{i}.xielu", row, (4,)) for i, row in enumerate(made)}


def _softplus(x: float) -> float:
    return max(x, 0.0) + math.log1p(math.exp(-abs(x)))


def _more_tokens(checkpoint: Checkpoint, spec: ModelSpec) -> Iterator[str]:
    """Tensors of the layers of multi-token prediction, which come after the model's."""
    n_more = checkpoint.header.get(f"{spec.arch}.nextn_predict_layers", int, default=0)
    prefixes = tuple(f"blk.{i}." for i in range(spec.n_layers, spec.n_layers + n_more))
    return (name for name in checkpoint.tensors if name.startswith(prefixes))


def tensor_shapes(spec: ModelSpec, arch: Arch, present: Collection[str]) -> dict[str, Shape]:
    """Shapes by full GGUF name: the row's required tensors, and the optional ones in `present`."""
    sizes, layers = _sizes(spec), _layer_sizes(spec, arch)
    names = dict(_required(spec, arch)) | {n: s for n, s in _optional(spec, arch) if n in present}
    return {
        name: tuple(layers.get(_prefix(name), sizes)[letter] for letter in letters)
        for name, letters in names.items()
    }


def _layer_sizes(spec: ModelSpec, arch: Arch) -> Mapping[str, Mapping[str, int]]:
    """Numbers of the letters in each layer, by the prefix of its tensors."""
    layers = _layers(spec, arch)
    made = {layer: _sizes(spec.of_layer(layer)) for layer in {*layers.values()}}
    return {prefix: made[layer] for prefix, layer in layers.items()}


def _layers(spec: ModelSpec, arch: Arch) -> Layers:
    """The layers of all stacks."""
    encoder = spec.encoder.layers if spec.encoder else ()
    stacks = (encoder, spec.layers) if arch.is_encoder_decoder else (spec.file_layers,)
    pairs = zip(arch.stacks, stacks, strict=True)
    return {f"{stack}blk.{i}.": layer for stack, layers in pairs for i, layer in enumerate(layers)}


def _prefix(name: str) -> str:
    """The prefix of a layer's tensors; other tensors have no such prefix."""
    found = LAYER.match(name)
    return found[0] if found else ""


def _sizes(spec: ModelSpec) -> Mapping[str, int]:
    experts = spec.experts
    return {
        "C": spec.hidden_size, "Q": spec.q_size, "K": spec.kv_size, "D": spec.head_dim,
        "F": spec.ffn_size, "V": spec.vocab_size, "P": spec.context_length,
        "E": experts.n_experts if experts else 0, "X": experts.ffn_size if experts else 0,
        "S": experts.shared_size if experts else 0, "x": experts.chunk_size if experts else 0,
        "h": experts.n_experts // experts.chunk_experts if experts else 0,
        "e": experts.latent_size if experts else 0,
        "o": (experts and experts.latent_size) or spec.hidden_size,
        "A": spec.n_heads, "k": spec.n_kv_heads, "1": 1,
        "a": spec.n_streams, "b": spec.n_streams - 1, "c": spec.n_streams**2, "p": spec.input_size,
        "l": spec.n_layers * spec.input_size, "m": spec.hidden_size if spec.input_size else 0,
        "r": spec.laurel_rank,
        "T": spec.n_token_types, "L": spec.encoder.n_labels if spec.encoder else 0,
        "J": spec.encoder.dense_size if spec.encoder else 0, "t": spec.n_buckets,
        **_ssm_sizes(spec.ssm), **_delta_sizes(spec.delta), **_conv_sizes(spec),
        **_rwkv_sizes(spec.rwkv),
        **(_mla_sizes(spec, spec.mla) if spec.mla else {}),
    }  # fmt: skip


def _mla_sizes(spec: ModelSpec, mla: MlaSpec) -> Mapping[str, int]:
    return {
        "J": 0 if mla.q_rank else spec.q_size, "q": mla.q_rank, "M": mla.kv_rank + mla.rope_dim,
        "R": mla.kv_rank, "n": spec.head_dim - mla.rope_dim, "Y": mla.value_dim,
        "O": spec.n_heads * mla.value_dim,
    }  # fmt: skip


def _conv_sizes(spec: ModelSpec) -> Mapping[str, int]:
    if not spec.conv_width:
        return {}
    return {"Z": 3 * spec.hidden_size, "U": spec.hidden_size, "W": spec.conv_width}


def _ssm_sizes(ssm: SsmSpec | None) -> Mapping[str, int]:
    if ssm is None:
        return {}
    return {
        "H": ssm.n_heads, "I": ssm.inner_size, "G": ssm.n_groups, "N": ssm.inner_size // ssm.n_groups,
        "Z": ssm.inner_size + ssm.conv_size + (0 if ssm.dt_rank else ssm.n_heads),
        "U": ssm.conv_size, "W": ssm.conv_width,
        "r": ssm.dt_rank, "s": ssm.state_size, "x": ssm.dt_rank + 2 * ssm.state_size,
    }  # fmt: skip


def _delta_sizes(delta: DeltaSpec | None) -> Mapping[str, int]:
    if delta is None:
        return {}
    return {
        "H": delta.n_heads, "I": delta.value_size, "N": delta.value_dim, "B": delta.n_key_heads,
        "U": 2 * delta.key_size + delta.value_size, "W": delta.conv_width,
    }  # fmt: skip


def _rwkv_sizes(rwkv: RwkvSpec | None) -> Mapping[str, int]:
    if rwkv is None:
        return {}
    return {
        "f": N_MIXED + bool(rwkv.gate_rank), "w": rwkv.decay_rank, "i": rwkv.rate_rank,
        "v": rwkv.value_rank, "g": rwkv.gate_rank, "m": rwkv.mix_rank, "y": len(MIXED) * rwkv.mix_rank,
        "H": rwkv.n_heads, "N": rwkv.head_dim, "d": rwkv.n_key_heads * rwkv.head_dim,
    }  # fmt: skip


def split_tensors(tensors: Mapping[str, Weight], spec: ModelSpec, arch: Arch) -> dict[str, Weight]:
    """The tensors, with fused ones cut into their parts.

    Cut are the rows of a matrix, the rows of each matrix of a stack, or a stack into its matrices.
    """
    out = dict(tensors)
    for prefix, sizes in {"": _sizes(spec), **_layer_sizes(spec, arch)}.items():
        for name, parts in arch.splits.items():
            if not all(letter in sizes for _, letter in parts):
                continue  # a part of a mixer that no layer has
            counts = [sizes[letter] for _, letter in parts]
            n_repeats = sizes[arch.interleaved.get(name, "1")]
            for ending in ("weight", "bias"):
                fused = out.get(f"{prefix}{name}.{ending}")
                if fused is not None and fused.shape and fused.shape[_axis(fused, counts)] == sum(counts):
                    del out[fused.name]
                    out |= _cut(fused, [f"{prefix}{part}.{ending}" for part, _ in parts], counts, n_repeats)
    return out


def _axis(fused: Weight, counts: list[int]) -> int:
    """The axis that is cut: 1 for a stack whose matrices are cut, else 0."""
    return int(len(fused.shape) == 3 and {*counts} != {1})


def _cut(fused: Weight, names: list[str], counts: list[int], n_repeats: int) -> dict[str, Weight]:
    """The parts by name. The file repeats the sequence of parts `n_repeats` times, once per head."""
    if _axis(fused, counts):
        spans = zip(names, accumulate(counts), counts, strict=True)
        return {name: cut_each(fused, name, end - n, n) for name, end, n in spans}
    sizes = [count // n_repeats for count in counts]
    starts = [range(sum(sizes[:i]), fused.shape[0], sum(sizes)) for i in range(len(sizes))]
    rows = [[(start, n) for start in s] for s, n in zip(starts, sizes, strict=True)]
    return {name: take_rows(fused, name, ranges) for name, ranges in zip(names, rows, strict=True)}


def _required(spec: ModelSpec, arch: Arch) -> Iterator[tuple[str, str]]:
    absent = _absent(spec)
    outer = {name: letters for name, letters in arch.outer.items() if not absent & {*letters}}
    named = outer | ({"position_embd": "PC"} if arch.has_positions else {})
    yield from ((f"{name}.weight", letters) for name, letters in named.items())
    yield from ((f"{name}.bias", _of_bias(named[name])) for name in arch.biases if name in named)
    for prefix, layer in _layers(spec, arch).items():
        first: Shapes = arch.first if prefix.endswith("blk.0.") else {}
        shapes = {**_layer_shapes(spec, arch, layer), **first}
        yield from ((f"{prefix}{_full(name, arch)}", letters) for name, letters in shapes.items())
        biases = (name for name in arch.biases if name in shapes)
        yield from ((f"{prefix}{name}.bias", _of_bias(shapes[name])) for name in biases)


def _optional(spec: ModelSpec, arch: Arch) -> Iterator[tuple[str, str]]:
    outer = {"output": "VC"} if spec.layers else arch.optional_outer
    yield from ((f"{name}.weight", letters) for name, letters in outer.items())
    yield from ((f"{name}.bias", _of_bias(outer[name])) for name in arch.optional_biases if name in outer)
    for prefix, layer in _layers(spec, arch).items():
        shapes = {**_layer_shapes(spec, arch, layer), **arch.optional}
        optional = {**arch.optional, **arch.first, **_unread_kv(arch, layer)}
        yield from ((f"{prefix}{_full(name, arch)}", letters) for name, letters in optional.items())
        biases = (name for name in arch.optional_biases if name in shapes)
        yield from ((f"{prefix}{name}.bias", _of_bias(shapes[name])) for name in biases)


def _unread_kv(arch: Arch, layer: LayerSpec) -> Shapes:
    """Tensors of keys and values that files have in a layer that reads those of another layer."""
    own = arch.layer_tensors(replace(layer, kv_layer=-1)) if layer.kv_layer >= 0 else dict[str, str]()
    return {name: own[name] for name in KV_TENSORS if name in own}


def _layer_shapes(spec: ModelSpec, arch: Arch, layer: LayerSpec) -> Shapes:
    absent = _absent(spec)
    names = SEQUENTIAL if layer.residual == "sequential" else ()
    second = {name: arch.optional[name] for name in names if name in arch.optional}
    required = {name: s for name, s in arch.layer_tensors(layer).items() if name not in arch.optional}
    shapes = {**required, **second}
    return {name: letters for name, letters in shapes.items() if not absent & {*letters}}


def _absent(spec: ModelSpec) -> set[str]:
    """Letters of tensors that the model does not have."""
    sizes = _sizes(spec)
    return {letter for letter in ABSENT if not sizes.get(letter, 0)}


def _of_bias(letters: str) -> str:
    """The shape of a bias: that of the weight, without columns."""
    return letters[:-1] or letters


def _full(name: str, arch: Arch) -> str:
    """The GGUF name of a layer's tensor: `.weight` is added unless the name has its ending."""
    return name if name in (*NO_ENDING, *arch.no_ending) or name.endswith(".bias") else f"{name}.weight"


def _short(name: str) -> str:
    return name.removesuffix(".weight")


def _check_stacked(tensors: Mapping[str, Weight]) -> None:
    """Refuses files from before April 2024: converters wrote one tensor per expert."""
    single = next((name for name in tensors if SINGLE_EXPERT.fullmatch(name)), None)
    if single:
        raise UnsupportedModelError(
            f"{single}: one tensor for each expert, expected a stack (the layout changed in April 2024); "
            "convert the model again",
            kind="tensor layout",
            name=single,
        )


def _checked(name: str, tensors: Mapping[str, Weight], want: Shape) -> Weight:
    weight = tensors.get(name)
    if weight is None or not _is_shape(weight.shape, want):
        got = weight.shape if weight else "nothing"
        raise TensorShapeError(
            f"{name}: found {got}, expected shape {want}; was this file made for another architecture?",
            name=_short(name),
            got=got,
            want=want,
        )
    # Norms, biases and the scan's vectors are float32 on every backend; their bytes are negligible.
    is_plain = len(want) == 1 or name.endswith(".bias") or _short(name).rpartition(".")[2] in ELEMENTWISE
    return replace(as_f32(weight) if is_plain else weight, name=_short(name), shape=want)


def _is_shape(got: Shape, want: Shape) -> bool:
    """True if the shapes agree but for leading dimensions of 1: ggml drops them, and a part of a stack has
    one.
    """
    return _without_ones(got) == _without_ones(want)


def _without_ones(shape: Shape) -> Shape:
    return tuple(dropwhile((1).__eq__, shape))


def _check_all_consumed(names: set[str], consumed: set[str], arch_name: str) -> None:
    unused = sorted(names - consumed)
    if unused:
        more = f" and {len(unused) - 1} more" if len(unused) > 1 else ""
        raise TensorShapeError(
            f"tensor {unused[0]}{more}: no rule of architecture {arch_name!r} uses it, "
            "so results would be wrong",
            name=unused[0],
            got=unused[0],
            want="no further tensors",
        )
