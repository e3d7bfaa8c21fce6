"""A Hugging Face directory as a checkpoint: GGUF's metadata, and tensors by GGUF's names with their folds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from math import prod

from camelid.errors import TensorShapeError, UnsupportedModelError
from camelid.formats.gguf import Gguf
from camelid.formats.gguf_header import MetadataValue
from camelid.formats.gguf_writer import infer_kinds
from camelid.formats.hf_config import Config, HfDirectory, HfTensor
from camelid.model.archs import HF_ROWS
from camelid.model.checkpoint import Checkpoint
from camelid.model.hf_facts import MAX_EXPERTS, Facts, hf_metadata, rope_factors
from camelid.model.hf_rows import HfRow
from camelid.plan.weights import Part, Weight, inline_f32, take_rows

FLOATS = ("f32", "f16", "bf16")
ENDINGS = (".weight", ".bias", "")  # the published name of a number a head has none
DELTA_COUNTS = ("state_size", "group_count", "time_step_rank")
SAMPLING = {"temp": "temperature", "top_p": "top_p", "min_p": "min_p", "penalty_repeat": "repetition_penalty"}


def checkpoint_of_hf(directory: HfDirectory) -> Checkpoint:
    """The directory as GGUF metadata and tensors, without its tokenizer.

    Raises UnsupportedModelError for a model_type without a row or a setting that changes the maths,
    TensorShapeError for a tensor that no rule uses, ModelFormatError for impossible settings.
    """
    facts = read_facts(directory)
    metadata = hf_metadata(facts, name=directory.path.resolve().name) | _sampling(directory)
    tensors = {w.name: w for w in _weights(directory, facts)}
    tensors |= {n: inline_f32(n, values, (len(values),)) for n, values in rope_factors(facts).items()}
    _check_vocabulary(facts, tensors)
    _check_tying(facts, tensors)
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


def read_facts(directory: HfDirectory) -> Facts:
    """The settings and their row. UnsupportedModelError if no row has that model_type."""
    row, settings = _row(directory), directory.settings
    config = replace(settings, values={**row.defaults, **settings.values})  # null counts as stated
    return Facts(config, row, max(len(directory.tensors), 1))


def _row(directory: HfDirectory) -> HfRow:
    name = directory.settings.text("model_type")
    row = HF_ROWS.get(name)
    if row is None:
        known = ", ".join(sorted(HF_ROWS))
        raise UnsupportedModelError(
            f"{directory.path}: model_type {name!r} is not supported; supported: {known}",
            kind="model_type",
            name=name,
            known=known,
        )
    return row


def _weights(directory: HfDirectory, facts: Facts) -> Iterator[Weight]:
    """Every tensor of the directory, once, under its GGUF name."""
    naming = name_tensors(directory, facts)
    yield from (fold_tensors(name, found, facts) for name, found in naming.named.items())
    if naming.unknown:
        _refuse_rest(directory, sorted(naming.unknown))


@dataclass(frozen=True, slots=True)
class Naming:
    """What each tensor of a directory is: part of a weight by its GGUF name, no weight at all, or unknown."""

    named: Mapping[str, list[HfTensor]]
    ignored: Mapping[str, HfTensor]
    unknown: Mapping[str, HfTensor]


def name_tensors(directory: HfDirectory, facts: Facts) -> Naming:
    """Every tensor finds its rule by name alone; nothing is checked. Others are under their full names."""
    left = dict(directory.tensors)
    bare = facts.row.outer["token_embd"].split(".")[0] + "."
    if not any(name.startswith(bare) for name in left):  # some repositories publish the inner model's names
        left = {bare + name: tensor for name, tensor in left.items()}
    named: dict[str, list[HfTensor]] = {}
    used: set[str] = set()
    for name, inner in _named(facts):
        for ending in ENDINGS:
            found = [one for one in _each(inner + ending, facts) if one in left]
            if found:
                named[name + ending] = [left[one] for one in found]
                used |= {*found}
    left = {name: tensor for name, tensor in left.items() if name not in used}
    ignored = {name: tensor for name, tensor in left.items() if _is_ignored(name, facts)}
    return Naming(named, ignored, {name: t for name, t in left.items() if name not in ignored})


def _is_ignored(name: str, facts: Facts) -> bool:
    return name.endswith(facts.row.ignored) or name.startswith(facts.row.ignored)


def _named(facts: Facts) -> Iterator[tuple[str, str]]:
    """(GGUF name, published name), both without their endings."""
    yield from facts.row.outer.items()
    names = facts.names
    for i in range(facts.n_layers):
        prefix = facts.row.layer.format(i=i)
        yield from ((f"blk.{i}.{name}", prefix + inner) for name, inner in names.items())


def _each(inner: str, facts: Facts) -> list[str]:
    """One name, or one for each expert."""
    return [inner.replace("{e}", str(e)) for e in range(facts.n_experts)] if "{e}" in inner else [inner]


def fold_tensors(full_name: str, found: list[HfTensor], facts: Facts) -> Weight:
    """The weight of that GGUF name made of published tensors. Raises if they differ or have another type."""
    first, name = found[0], full_name.removesuffix(".weight").removesuffix(".bias").rpartition(".")[2]
    is_stack = name.endswith("_exps") and facts.counts_experts
    _check_alike(full_name, found, facts.n_experts if is_stack else 1)
    shape = (len(found), *first.shape) if is_stack else first.shape
    parts = tuple(Part(t.file, t.offset, t.n_bytes) for t in found)
    weight = Weight(name=full_name, type=first.type, shape=shape, parts=parts)
    fold = facts.row.folds.get(name)
    return FOLDS[fold](weight, facts) if fold else weight


def _check_alike(name: str, found: list[HfTensor], want: int) -> None:
    kinds = {(t.type, t.shape) for t in found}
    if len(found) != want or len(kinds) > 1:
        got = f"{len(found)} of {sorted(kinds)[:2]}"
        raise TensorShapeError(
            f"{name}: found {got}, expected {want} of one type and shape", name=name, got=got, want=want
        )
    if found[0].type not in FLOATS:
        raise UnsupportedModelError(
            f"{found[0].name}: type {found[0].type}, but weights must be one of {', '.join(FLOATS)}; "
            "a quantized repository cannot be read, its unquantized original can",
            kind="tensor type",
            name=found[0].type,
            known=FLOATS,
        )


def _transpose(weight: Weight, _: Facts) -> Weight:
    """Stored [in, out]. Biases are as they should be."""
    if len(weight.shape) != 2:
        return weight
    n_in, n_out = weight.shape
    return replace(weight, shape=(n_out, n_in)).then("transpose", n_in, n_out)


def _pairs(weight: Weight, n_heads: int) -> Weight:
    if weight.shape[0] % (2 * n_heads):
        return weight  # its shape is refused later, by name
    return weight.then("permute_rows", n_heads, weight.shape[0] // n_heads)


def _add_one(weight: Weight, _: Facts) -> Weight:
    """In float32, where 1 + w has room."""
    return _as_f32(weight).then("add", 1.0)


def _as_f32(weight: Weight) -> Weight:
    return weight if weight.type == "f32" else replace(weight, type="f32").then("cast", weight.type)


def _half(weight: Weight, i: int) -> Weight:
    """Rows of each matrix: the first half (0) or the second (1)."""
    if len(weight.shape) < 2 or weight.shape[-2] % 2 or prod(weight.shape[:-2]) > MAX_EXPERTS:
        return weight  # its shape is refused later, by name
    *stack, rows, cols = weight.shape
    n = prod(stack)
    part, each = weight.parts[0], weight.n_bytes // (2 * n)
    parts = tuple(Part(part.source, part.offset + (2 * k + i) * each, each) for k in range(n))
    return replace(weight, shape=(*stack, rows // 2, cols), parts=parts)


def _squeeze(weight: Weight, _: Facts) -> Weight:
    """A convolution of one channel to one: its dimension of 1 goes."""
    return replace(weight, shape=tuple(n for n in weight.shape if n != 1))


def _column(weight: Weight, _: Facts) -> Weight:
    return replace(weight, shape=(*weight.shape, 1))


def _groups(weight: Weight, facts: Facts) -> Weight:
    """A row for each group of a norm."""
    n = facts.config.count(facts.row.counts["ssm.group_count"])
    fits = len(weight.shape) == 1 and weight.shape[0] % n == 0
    return replace(weight, shape=(n, weight.shape[0] // n)) if fits else weight


def _decay(weight: Weight, _: Facts) -> Weight:
    """-exp of the stored logarithm, in float32."""
    return _as_f32(weight).then("neg_exp")


def _of_qkvz(weight: Weight, facts: Facts, parts: slice) -> Weight:
    """Some of queries, keys, values and gates, whose rows take turns, once a key head; each part whole."""
    key_dim, n_key_heads, n_heads = (facts.config.count(facts.row.counts[f"ssm.{k}"]) for k in DELTA_COUNTS)
    value_dim = facts.config.count("linear_value_head_dim")
    values = n_heads // n_key_heads * value_dim
    sizes = (key_dim, key_dim, values, values)
    if len(weight.shape) != 2 or weight.shape[0] != n_key_heads * sum(sizes):
        return weight  # its shape is refused later, by name
    starts = [(sum(sizes[:i]), sizes[i]) for i in range(4)][parts]
    turns = range(0, weight.shape[0], sum(sizes))
    return take_rows(weight, weight.name, ((turn + start, n) for start, n in starts for turn in turns))


FOLDS: Mapping[str, Callable[[Weight, Facts], Weight]] = {
    "transpose": _transpose,
    "pairs_of_q": lambda weight, facts: _pairs(weight, facts.n_heads),
    "pairs_of_k": lambda weight, facts: _pairs(weight, facts.n_kv_heads),
    "add_one": _add_one,
    "first_half": lambda weight, _: _half(weight, 0),
    "second_half": lambda weight, _: _half(weight, 1),
    "squeeze": _squeeze,
    "column": _column,
    "groups": _groups,
    "decay": _decay,
    "decay_column": lambda weight, facts: _column(_decay(weight, facts), facts),
    "qkv_of_qkvz": lambda weight, facts: _of_qkvz(weight, facts, slice(3)),
    "z_of_qkvz": lambda weight, facts: _of_qkvz(weight, facts, slice(3, 4)),
}


def _sampling(directory: HfDirectory) -> dict[str, MetadataValue]:
    """How the publisher samples, from generation_config.json: `do_sample: false` is temperature 0."""
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


def _check_vocabulary(facts: Facts, tensors: Mapping[str, Weight]) -> None:
    embedding = tensors.get("token_embd.weight")
    if embedding is None or not facts.config.has("vocab_size"):
        return
    want = facts.config.count("vocab_size")
    if embedding.shape[0] != want:
        raise TensorShapeError(
            f"{facts.row.outer['token_embd']}.weight: vocab_size is {want}, but the embedding has "
            f"{embedding.shape[0]} rows",
            name="token_embd",
            got=embedding.shape,
            want=want,
        )


def _check_tying(facts: Facts, tensors: Mapping[str, Weight]) -> None:
    """An untied model has an output matrix. A tied one that has it all the same, uses it: transformers 5
    ties only where both are equal."""
    if not facts.is_tied and "output.weight" not in tensors:
        raise TensorShapeError(
            f"{facts.row.outer['output']}.weight is missing, and tie_word_embeddings is false",
            name="output",
            got="nothing",
            want="a matrix [vocabulary, hidden]",
        )


def _refuse_rest(directory: HfDirectory, names: list[str]) -> None:
    more = f" and {len(names) - 1} more" if len(names) > 1 else ""
    raise TensorShapeError(
        f"{directory.path}: tensor {names[0]}{more}: no rule of model_type "
        f"{directory.settings.text('model_type')!r} uses it, so results would be wrong",
        name=names[0],
        got=names[0],
        want="no further tensors",
    )
