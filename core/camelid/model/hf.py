"""Checkpoint of a Hugging Face directory: GGUF metadata, and weights by GGUF name with their folds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from camelid.errors import TensorShapeError, UnsupportedModelError, nearest, shown
from camelid.formats.gguf import Gguf
from camelid.formats.gguf_header import MetadataValue
from camelid.formats.gguf_writer import infer_kinds
from camelid.formats.hf_config import Config, HfDirectory, HfTensor
from camelid.formats.json_text import JsonObject
from camelid.formats.mlx_quant import fold_planes, read_quantization
from camelid.formats.mxfp4 import fold_blocks
from camelid.model.archs import HF_ROWS, row_name
from camelid.model.checkpoint import Checkpoint
from camelid.model.hf_embedding import embedding_metadata
from camelid.model.hf_folds import FOLDS, scaled
from camelid.model.hf_metadata import hf_metadata
from camelid.model.hf_names import published_names, stack_of, stacked_names
from camelid.model.hf_numbers import layer_numbers
from camelid.model.hf_ranking import answer_ids, with_answers
from camelid.model.hf_rotation import rope_factors
from camelid.model.hf_rows import HfRow
from camelid.model.hf_settings import HfSettings
from camelid.model.mlx_rows import row_of_mlx
from camelid.plan.weights import Part, Weight, inline_f32

FLOATS = ("f32", "f16", "bf16")
TOKEN_TYPES = "tokenizer.ggml.token_type_count"  # llama.cpp opens no BERT without it
MAX_LABELS = 1 << 12


ENDINGS = (".weight", ".bias", "")  # per-head vectors such as A_log are published without an ending


SAMPLING = {"temp": "temperature", "top_p": "top_p", "min_p": "min_p", "penalty_repeat": "repetition_penalty"}


def checkpoint_of_hf(directory: HfDirectory) -> Checkpoint:
    """The directory's metadata and weights in GGUF's terms, without the tokenizer.

    Raises UnsupportedModelError for a model_type without a row or a setting that would change the results,
    TensorShapeError for a tensor without a rule, ModelFormatError for impossible settings.
    """
    settings = read_settings(directory)
    metadata = hf_metadata(settings, name=directory.path.resolve().name) | _sampling(directory)
    metadata |= layer_numbers(directory, settings)
    metadata |= embedding_metadata(directory.embedding, settings)
    tensors = {w.name: w for w in _weights(directory, settings)}
    tensors |= {w.name: w for w in _dense(directory.embedding.dense)}
    tensors |= {n: inline_f32(n, values, (len(values),)) for n, values in rope_factors(settings).items()}
    _check_vocabulary(settings, tensors)
    if not directory.embedding.pooling and not settings.arch.is_encoder and not settings.is_ranking:
        _check_tying(settings, tensors)
    tensors = with_answers(tensors, answer_ids(directory))
    if types := tensors.get("token_types.weight"):
        metadata[TOKEN_TYPES] = types.shape[0]
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
    if row.nested:
        config = replace(config, values={**config.values, **config.section(row.nested).values})
    values = {**row.defaults, **_renamed(config, row)}  # null is a stated value
    n_tensors, n_labels = max(len(directory.tensors), 1), _n_labels(directory, row)
    return HfSettings(replace(config, values=values), row, n_tensors, n_labels)


def _n_labels(directory: HfDirectory, row: HfRow) -> int:
    """Rows of the ranking head in the directory; 0 without one. Raises TensorShapeError for too many."""
    name = row.ranking.get("cls.output")
    head = directory.tensors.get(f"{name}.weight") if name else None
    n_labels = head.shape[0] if head and head.shape else 0
    if n_labels > MAX_LABELS:
        raise TensorShapeError(
            f"{name}.weight: {n_labels} labels, expected at most {MAX_LABELS}",
            name=f"{name}.weight",
            got=n_labels,
            want=MAX_LABELS,
        )
    return n_labels


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
        near = nearest(name, HF_ROWS)
        raise UnsupportedModelError(
            f"{directory.path}: model_type {shown(name)} is not supported; supported: {near}",
            kind="model_type",
            name=name,
            known=", ".join(sorted(HF_ROWS)),
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


def fold_tensors(full_name: str, tensors: list[HfTensor], settings: HfSettings) -> Weight:
    """The weight `full_name` from its published tensors: one, or one per expert or head.

    Raises TensorShapeError if their number, types or shapes do not fit, UnsupportedModelError for a type
    other than FLOATS.
    """
    first, name = tensors[0], full_name.removesuffix(".weight").removesuffix(".bias").rpartition(".")[2]
    names = settings.names
    published = names.get(name) or names.get(f"{name}.weight") or settings.outer.get(name, "")
    mark, n = stack_of(published, settings)
    _check_alike(full_name, tensors, n)
    shape = (n, *first.shape) if mark else first.shape
    parts = tuple(Part(p.file, p.offset, p.n_bytes) for t in tensors for p in t.planes or (t,))
    weight = Weight(name=full_name, type=first.type, shape=shape, parts=parts)
    weight = weight.then("join_groups", *first.groups) if first.groups else weight
    if name in settings.row.scales:
        weight = scaled(weight, settings.row.scales[name](settings.config, weight.rows))
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
        f"{shown(row_name(directory.settings))} uses it, so results would be wrong",
        name=names[0],
        got=names[0],
        want="no further tensors",
    )
