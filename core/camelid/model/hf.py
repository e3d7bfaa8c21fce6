"""Checkpoint of a Hugging Face directory: GGUF metadata, and weights by GGUF name with their folds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import prod

from camelid.errors import TensorShapeError, UnsupportedModelError, shown
from camelid.formats.gguf import Gguf
from camelid.formats.gguf_header import MetadataValue
from camelid.formats.gguf_writer import infer_kinds
from camelid.formats.hf_config import Config, HfDirectory, HfTensor
from camelid.formats.json_text import JsonObject
from camelid.formats.mlx_quant import fold_planes, read_quantization
from camelid.formats.mxfp4 import fold_blocks
from camelid.model.archs import HF_ROWS, row_name
from camelid.model.checkpoint import Checkpoint
from camelid.model.delta_folds import of_qkvz, tiled_columns, tiled_heads
from camelid.model.hf_embedding import embedding_metadata
from camelid.model.hf_metadata import MAX_EXPERTS, HfSettings, hf_metadata, rope_factors, unsupported
from camelid.model.hf_rows import HfRow, Runs
from camelid.model.latent import fits, k_of_kv_b, v_of_kv_b
from camelid.model.mlx_rows import row_of_mlx
from camelid.plan.weights import Part, Weight, cut_each, cut_rows, inline_f32, take_rows

FLOATS = ("f32", "f16", "bf16")
ENDINGS = (".weight", ".bias", "")  # per-head vectors such as A_log are published without an ending
SAMPLING = {"temp": "temperature", "top_p": "top_p", "min_p": "min_p", "penalty_repeat": "repetition_penalty"}


def checkpoint_of_hf(directory: HfDirectory) -> Checkpoint:
    """The directory's metadata and weights in GGUF's terms, without the tokenizer.

    Raises UnsupportedModelError for a model_type without a row or a setting that would change the results,
    TensorShapeError for a tensor without a rule, ModelFormatError for impossible settings.
    """
    settings = read_settings(directory)
    metadata = hf_metadata(settings, name=directory.path.resolve().name) | _sampling(directory)
    metadata |= embedding_metadata(directory.embedding, settings)
    tensors = {w.name: w for w in _weights(directory, settings)}
    tensors |= {w.name: w for w in _dense(directory.embedding.dense)}
    tensors |= {n: inline_f32(n, values, (len(values),)) for n, values in rope_factors(settings).items()}
    _check_vocabulary(settings, tensors)
    if not directory.embedding.pooling and not settings.arch.is_encoder:
        _check_tying(settings, tensors)
    header = Gguf(
        version=3,
        alignment=32,
        metadata=metadata,
        kinds=infer_kinds(metadata),
        tensors={},
        data_offset=0,
        file_size=sum(t.n_bytes for t in directory.tensors.values()),
        path=str(directory.path),
    )
    return Checkpoint(header, tensors)


def read_settings(directory: HfDirectory) -> HfSettings:
    """config.json with its row. Raises UnsupportedModelError for a model_type without a row."""
    row, config = _row(directory), directory.settings
    values = {**row.defaults, **_renamed(config, row)}  # null is a stated value
    return HfSettings(replace(config, values=values), row, max(len(directory.tensors), 1))


def _renamed(config: Config, row: HfRow) -> JsonObject:
    """The settings with older keys renamed, and with the keys of the row's sections."""
    nested = {
        f"{name}.{key}": value for name in row.sections for key, value in config.section(name).values.items()
    }
    older = {row.aliases[key]: value for key, value in config.values.items() if key in row.aliases}
    return {**{key: value for key, value in older.items() if value is not None}, **config.values, **nested}


def _row(directory: HfDirectory) -> HfRow:
    name = row_name(directory.settings)
    row = HF_ROWS.get(name)
    if row is None:
        known = ", ".join(sorted(HF_ROWS))
        raise UnsupportedModelError(
            f"{directory.path}: model_type {shown(name)} is not supported; supported: {known}",
            kind="model_type",
            name=name,
            known=known,
        )
    key = "use_bidirectional_attention"
    if directory.settings.values.get(key) and row.bidirectional:
        refused = {name: known for name, known in row.refused.items() if name != key}
        row = replace(row, arch=row.bidirectional, refused=refused)
    return row_of_mlx(name, row, directory.tensors)


def _weights(directory: HfDirectory, settings: HfSettings) -> Iterator[Weight]:
    """The weights by GGUF name. Raises TensorShapeError for a tensor without a rule."""
    naming = name_tensors(directory, settings)
    yield from (fold_tensors(name, tensors, settings) for name, tensors in naming.named.items())
    if naming.unknown:
        _refuse_unknown(directory, sorted(naming.unknown))


@dataclass(frozen=True, slots=True)
class Naming:
    """The tensors of a directory: `named` by GGUF name of their weight, the others by published name.

    Published names start with the prefix `model.` even if the directory leaves it out.
    """

    named: Mapping[str, list[HfTensor]]
    ignored: Mapping[str, HfTensor]
    unknown: Mapping[str, HfTensor]


def name_tensors(directory: HfDirectory, settings: HfSettings) -> Naming:
    """Matches tensors to GGUF names, a matrix that MLX quantized as one tensor.

    Types, shapes and counts are not checked. Raises the errors of `fold_planes`.
    """
    tensors = fold_planes(fold_blocks(directory.tensors), read_quantization(directory.settings))
    prefix = settings.row.outer["token_embd"].split(".")[0] + "."
    if not any(name.startswith(prefix) for name in tensors):  # published from the inner model, without prefix
        tensors = {prefix + name: tensor for name, tensor in tensors.items()}
    named: dict[str, list[HfTensor]] = {}
    used: set[str] = set()
    for name, published in published_names(settings):
        for ending in ENDINGS:
            present = [each for each in stacked_names(published + ending, settings) if each in tensors]
            if present:
                named[name + ending] = [tensors[each] for each in present]
                used |= {*present}
    unused = {name: tensor for name, tensor in tensors.items() if name not in used}
    ignored = {name: tensor for name, tensor in unused.items() if _is_ignored(name, settings)}
    return Naming(named, ignored, {name: t for name, t in unused.items() if name not in ignored})


def _is_ignored(name: str, settings: HfSettings) -> bool:
    more = settings.config.count("num_nextn_predict_layers", 0, least=0, most=settings.n_tensors)
    first = settings.n_layers  # layers of multi-token prediction come after the model's
    prefixes = (settings.row.layer.format(i=i) for i in range(first, first + more))
    return name.endswith(settings.row.ignored) or name.startswith((*settings.row.ignored, *prefixes))


def published_names(settings: HfSettings) -> Iterator[tuple[str, str]]:
    """(GGUF name, published name) of every tensor, both without their endings."""
    yield from settings.outer.items()
    names = settings.names
    for i in range(settings.n_layers):
        prefix = settings.row.layer.format(i=i)
        yield from ((f"blk.{i}.{name}", prefix + inner) for name, inner in names.items())


STACKS: Mapping[str, Callable[[HfSettings], int]] = {
    "{e}": lambda settings: settings.n_experts,
    "{h}": lambda settings: settings.n_experts // settings.count("experts_per_group"),
    "{q}": lambda settings: settings.n_heads,
    "{k}": lambda settings: settings.n_kv_heads,
    "{s}": lambda settings: settings.n_streams - 1,
}


def stacked_names(name: str, settings: HfSettings) -> list[str]:
    """The name itself, or one name per expert, head or stream if it has a placeholder."""
    mark, n = _stack_of(name, settings)
    return [name.replace(mark, str(i)) for i in range(n)] if mark else [name]


def _stack_of(name: str, settings: HfSettings) -> tuple[str, int]:
    """The placeholder of a published name, and the number of its tensors; ("", 1) without one."""
    return next(((mark, count(settings)) for mark, count in STACKS.items() if mark in name), ("", 1))


def fold_tensors(full_name: str, tensors: list[HfTensor], settings: HfSettings) -> Weight:
    """The weight `full_name` from its published tensors: one, or one per expert or head.

    Raises TensorShapeError if their number, types or shapes do not fit, UnsupportedModelError for a type
    other than FLOATS.
    """
    first, name = tensors[0], full_name.removesuffix(".weight").removesuffix(".bias").rpartition(".")[2]
    mark, n = _stack_of(settings.names.get(name) or settings.outer.get(name, ""), settings)
    _check_alike(full_name, tensors, n)
    shape = (n, *first.shape) if mark else first.shape
    parts = tuple(Part(p.file, p.offset, p.n_bytes) for t in tensors for p in t.planes or (t,))
    weight = Weight(name=full_name, type=first.type, shape=shape, parts=parts)
    weight = weight.then("join_groups", *first.groups) if first.groups else weight
    if name in settings.row.scales:
        weight = _scaled(weight, settings.row.scales[name](settings.config, weight.rows))
    for fold in settings.row.folds.get(name, "").split():
        weight = FOLDS[fold](weight, settings)
    return weight


def _check_alike(name: str, tensors: list[HfTensor], want: int) -> None:
    kinds = {(t.type, t.shape, *t.groups) for t in tensors}
    if len(tensors) != want or len(kinds) > 1:
        got = f"{len(tensors)} of {sorted(kinds)[:2]}"
        raise TensorShapeError(
            f"{name}: found {got}, expected {want} of one type and shape", name=name, got=got, want=want
        )
    if tensors[0].type not in FLOATS and not tensors[0].planes:
        raise UnsupportedModelError(
            f"{tensors[0].name}: type {tensors[0].type}, expected one of {', '.join(FLOATS)}; quantized "
            "repositories are supported in MLX's format alone, load the unquantized original",
            kind="tensor type",
            name=tensors[0].type,
            known=FLOATS,
        )


def _dense(tensors: Sequence[HfTensor]) -> Iterator[Weight]:
    """The matrices after the pooling, numbered as the modules of their directory."""
    for i, t in enumerate(tensors):
        part = Part(t.file, t.offset, t.n_bytes)
        yield Weight(name=f"dense_{i + 2}.weight", type=t.type, shape=t.shape, parts=(part,))


def _scaled(weight: Weight, runs: Runs) -> Weight:
    """Runs of rows times a number each, in float32."""
    if sum(n for n, _ in runs) != weight.rows:
        return weight  # match_tensors refuses the shape
    return _as_f32(weight).then("scale_rows", *(number for run in runs for number in run))


def _transpose(weight: Weight, _: HfSettings) -> Weight:
    """A matrix stored as [in, out]; a bias stays as it is."""
    if len(weight.shape) != 2:
        return weight
    n_in, n_out = weight.shape
    return replace(weight, shape=(n_out, n_in)).then("transpose", n_in, n_out)


def _transpose_each(weight: Weight, _: HfSettings) -> Weight:
    """A stack of matrices stored as [in, out]; blocks are [out, in], and biases stay as they are."""
    return weight if len(weight.shape) != 3 or weight.has_planes else _turned(weight)


def _turned(weight: Weight) -> Weight:
    n, n_in, n_out = weight.shape
    return replace(weight, shape=(n, n_out, n_in)).then("transpose", n_in, n_out)


def _alternate(weight: Weight, start: int) -> Weight:
    """Every other output of a stack from `start` on: of matrices [in, out], biases, or blocks [out, in]."""
    *stack, n_out = weight.shape[:-1] if weight.has_planes else weight.shape
    if n_out % 2:
        return weight  # match_tensors refuses the shape
    if weight.has_planes:
        return replace(weight, shape=(*stack, n_out // 2, weight.cols)).then("every", start, 2, weight.rows)
    half = replace(weight, shape=(*stack, n_out // 2))
    half = half.then("transpose", half.rows * half.cols, 2).then("rows", start, 1, 2)
    return _turned(half) if len(half.shape) == 3 else half


def _pairs(weight: Weight, n_heads: int) -> Weight:
    if weight.shape[0] % (2 * n_heads):
        return weight  # match_tensors refuses the shape
    return weight.then("permute_rows", n_heads, weight.shape[0] // n_heads)


def _stacked(weight: Weight, settings: HfSettings, i: int) -> Weight:
    """Rows of the queries (0), keys (1) or values (2) of a matrix or bias that stacks the three."""
    n_q, n_kv = settings.n_heads * settings.head_dim, settings.n_kv_heads * settings.head_dim
    if weight.shape[0] != n_q + 2 * n_kv:
        return weight  # match_tensors refuses the shape
    return cut_rows(weight, weight.name, *((0, n_q), (n_q, n_kv), (n_q + n_kv, n_kv))[i])


def _grouped(weight: Weight, settings: HfSettings, i: int) -> Weight:
    """The same rows of a matrix that repeats, for each KV head: its query heads, its key, its value."""
    dim, n_kv_heads = settings.head_dim, settings.n_kv_heads
    n_q = settings.n_heads // n_kv_heads * dim
    if weight.shape[0] != n_kv_heads * (n_q + 2 * dim):
        return weight  # match_tensors refuses the shape
    start, n = ((0, n_q), (n_q, dim), (n_q + dim, dim))[i]
    heads = range(0, weight.shape[0], n_q + 2 * dim)
    return take_rows(weight, weight.name, [(head + start, n) for head in heads])


def _add_one(weight: Weight, _: HfSettings) -> Weight:
    """gain = 1 + weight, in float32: bf16 would round the small weights away. A bias stays as it is."""
    if weight.name.endswith(".bias"):
        return weight
    return _as_f32(weight).then("add", 1.0)


def _as_f32(weight: Weight) -> Weight:
    return weight if weight.type == "f32" else replace(weight, type="f32").then("cast", weight.type)


def _half(weight: Weight, i: int) -> Weight:
    """Rows of each matrix: the first half (0) or the second (1)."""
    if len(weight.shape) < 2 or weight.shape[-2] % 2 or prod(weight.shape[:-2]) > MAX_EXPERTS:
        return weight  # match_tensors refuses the shape
    *stack, rows, cols = weight.shape
    if weight.load_ops:
        cut = cut_each if stack else cut_rows
        return cut(weight, weight.name, i * rows // 2, rows // 2)
    n = prod(stack)
    part, n_bytes = weight.parts[0], weight.n_bytes // (2 * n)
    parts = tuple(Part(part.source, part.offset + (2 * k + i) * n_bytes, n_bytes) for k in range(n))
    return replace(weight, shape=(*stack, rows // 2, cols), parts=parts)


def _after_padding(weight: Weight, settings: HfSettings) -> Weight:
    """The positions after those of padding, from position 0 of a text on."""
    n = settings.n_skipped
    return cut_rows(weight, weight.name, n, weight.shape[0] - n) if weight.shape[0] > n else weight


def _squeeze(weight: Weight, _: HfSettings) -> Weight:
    """A depthwise convolution without its dimension of 1: [U, 1, W] -> [U, W]."""
    return replace(weight, shape=tuple(n for n in weight.shape if n != 1))


def _pad_rows(weight: Weight, settings: HfSettings) -> Weight:
    """An embedding with a row for each token: tokens beyond its end have the first row."""
    n_rows = weight.shape[0]
    n_more = settings.config.count("vocab_size") - n_rows
    if not 0 < n_more <= MAX_EXPERTS:
        return weight  # match_tensors refuses the shape
    return take_rows(weight, weight.name, [(0, n_rows), *[(0, 1)] * n_more])


def _single_row(weight: Weight, _: HfSettings) -> Weight:
    """A matrix of one row as a vector."""
    return replace(weight, shape=weight.shape[1:]) if weight.shape[0] == 1 else weight


def _published_conv(weight: Weight, settings: HfSettings) -> Weight:
    """`squeeze`, of a family whose weights mlx-lm changes when it turns its convolutions."""
    if weight.shape[-1:] == (1,):
        raise unsupported("model_type", f"{settings.config.text('model_type')} of mlx-lm", ("the original",))
    return _squeeze(weight, settings)


def _column(weight: Weight, _: HfSettings) -> Weight:
    return replace(weight, shape=(*weight.shape, 1))


def _groups(weight: Weight, settings: HfSettings) -> Weight:
    """The gain of a grouped norm as one row per group."""
    n = settings.config.count(settings.row.counts["ssm.group_count"])
    fits = len(weight.shape) == 1 and weight.shape[0] % n == 0
    return replace(weight, shape=(n, weight.shape[0] // n)) if fits else weight


def _groups_behind_gate(weight: Weight, settings: HfSettings) -> Weight:
    """`groups`, of a norm that follows the gate."""
    if settings.config.flag("mamba_norm_before_gate", True):
        raise unsupported("mamba_norm_before_gate", True, (False,))
    return _groups(weight, settings)


def _decay(weight: Weight, _: HfSettings) -> Weight:
    """-exp of the stored logarithm, in float32."""
    return _as_f32(weight).then("neg_exp")


def _of_kv_b(weight: Weight, settings: HfSettings, part: str) -> Weight:
    """The part `k` or `v` of the matrix that expands keys and values of latent attention."""
    nope, value = (settings.config.count(key) for key in ("qk_nope_head_dim", "v_head_dim"))
    if not fits(weight, settings.n_heads, nope, value):
        return weight  # match_tensors refuses the shape
    if part == "k":
        cut = k_of_kv_b(weight, settings.n_heads, nope)
    else:
        cut = v_of_kv_b(weight, settings.n_heads, value)
    return replace(cut, name=weight.name)


def _qkv_of_groups(weight: Weight, settings: HfSettings) -> Weight:
    """All queries, all keys, all values of rows that are grouped by key head: its queries, key, value."""
    n_groups, each = settings.n_kv_heads, settings.n_heads // settings.n_kv_heads
    heads = (each, 1, 1)  # of a group: queries, key, value
    if weight.shape[0] % (n_groups * sum(heads)):
        return weight  # match_tensors refuses the shape
    size = weight.shape[0] // (n_groups * sum(heads))
    ranges = [(sum(heads[:i]) * size, n * size) for i, n in enumerate(heads)]
    groups = range(0, weight.shape[0], sum(heads) * size)  # first row of each group
    return take_rows(weight, weight.name, ((group + start, n) for start, n in ranges for group in groups))


def _without_offset(weight: Weight, _: HfSettings) -> Weight:
    """Learned positions from the row of position 0 on, which OPT's files store third."""
    n = weight.shape[0] - 2
    return cut_rows(weight, weight.name, 2, n) if n > 0 else weight


FOLDS: Mapping[str, Callable[[Weight, HfSettings], Weight]] = {
    "transpose": _transpose,
    "transpose_each": _transpose_each,
    "even": lambda weight, _: _alternate(weight, 0),
    "odd": lambda weight, _: _alternate(weight, 1),
    "pairs_of_q": lambda weight, settings: _pairs(weight, settings.n_heads),
    "pairs_of_k": lambda weight, settings: _pairs(weight, weight.shape[0] // settings.head_dim or 1),
    **{f"{name}_of_stack": partial(_stacked, i=i) for i, name in enumerate("qkv")},
    **{f"{name}_of_groups": partial(_grouped, i=i) for i, name in enumerate("qkv")},
    "add_one": _add_one,
    "first_half": lambda weight, _: _half(weight, 0),
    "second_half": lambda weight, _: _half(weight, 1),
    "after_padding": _after_padding,
    "qkv_of_groups": _qkv_of_groups,
    "without_offset": _without_offset,
    "squeeze": _squeeze,
    "pad_rows": _pad_rows,
    "row": _single_row,
    "column": _column,
    "groups": _groups,
    "published_conv": _published_conv,
    "tiled_columns": tiled_columns,
    "tiled_heads": tiled_heads,
    "groups_behind_gate": _groups_behind_gate,
    "decay": _decay,
    "decay_column": lambda weight, settings: _column(_decay(weight, settings), settings),
    "qkv_of_qkvz": lambda weight, settings: of_qkvz(weight, settings, slice(3)),
    "k_of_kv_b": lambda weight, settings: _of_kv_b(weight, settings, "k"),
    "v_of_kv_b": lambda weight, settings: _of_kv_b(weight, settings, "v"),
    "z_of_qkvz": lambda weight, settings: of_qkvz(weight, settings, slice(3, 4)),
}


def _sampling(directory: HfDirectory) -> dict[str, MetadataValue]:
    """Sampling defaults from generation_config.json; `do_sample: false` means temperature 0."""
    generation = Config(directory.generation, str(directory.path / "generation_config.json"))
    if not generation.flag("do_sample", True):
        return {"general.sampling.temp": 0.0}
    stated = {key: name for key, name in SAMPLING.items() if generation.has(name)}
    sampling: dict[str, MetadataValue] = {
        f"general.sampling.{key}": generation.number(name) for key, name in stated.items()
    }
    if generation.has("top_k"):
        sampling["general.sampling.top_k"] = generation.count("top_k", least=0)
    return sampling


def _check_vocabulary(settings: HfSettings, tensors: Mapping[str, Weight]) -> None:
    embedding = tensors.get("token_embd.weight")
    if embedding is None or not settings.config.has("vocab_size"):
        return
    want = settings.config.count("vocab_size")
    if embedding.shape[0] != want:
        raise TensorShapeError(
            f"{settings.row.outer['token_embd']}.weight: vocab_size is {want}, but the embedding has "
            f"{embedding.shape[0]} rows",
            name="token_embd",
            got=embedding.shape,
            want=want,
        )


def _check_tying(settings: HfSettings, tensors: Mapping[str, Weight]) -> None:
    """An untied model needs an output matrix.

    A tied model uses its output matrix if it has one: transformers 5 ties only equal matrices.
    """
    if not settings.is_tied and "output.weight" not in tensors:
        raise TensorShapeError(
            f"{settings.row.outer['output']}.weight is missing, but tie_word_embeddings is false",
            name="output",
            got="nothing",
            want="a matrix [vocab_size, hidden_size]",
        )


def _refuse_unknown(directory: HfDirectory, names: list[str]) -> None:
    more = f" and {len(names) - 1} more" if len(names) > 1 else ""
    raise TensorShapeError(
        f"{directory.path}: tensor {names[0]}{more}: no rule of model_type "
        f"{shown(directory.settings.text('model_type'))} uses it, so results would be wrong",
        name=names[0],
        got=names[0],
        want="no further tensors",
    )
