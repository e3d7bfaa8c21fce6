"""What a directory or a GGUF file says of itself, whether or not Camelid can run it. Reads headers only."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from math import prod
from pathlib import Path
from typing import Any, TypeVar, cast

from camelid.errors import CamelidError, ModelFormatError
from camelid.formats.gguf import Gguf, GgufTensor, MetadataValue, open_gguf
from camelid.formats.hf_config import HfDirectory, HfTensor, open_hf
from camelid.formats.json_text import JsonObject
from camelid.formats.safetensors import open_safetensors
from camelid.formats.source import drive
from camelid.loading.hf_directory import checkpoint_of_directory
from camelid.loading.model_file import tokenizer_of
from camelid.model.arch import Model
from camelid.model.archs import ARCHS
from camelid.model.checkpoint import Checkpoint, checkpoint_of_gguf
from camelid.model.facts import FACTOR_TENSORS, read_spec
from camelid.model.hf import fold_tensors, name_tensors, read_facts
from camelid.model.hf_facts import Facts
from camelid.model.read import read_model
from camelid.model.sizes import count_parameters
from camelid.model.tensors import tensor_shapes
from camelid.plan.weights import Weight

T = TypeVar("T")
Json = dict[str, Any]
LONG = 64  # items
ENDINGS = ("weight", "bias")
MAX_FACT_BYTES = 1 << 20  # tensors that are facts: factors of a rotation, one number for each pair
WEIGHT, IGNORED, UNUSED, UNKNOWN = "weight", "ignored", "unused", "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorFacts:
    """One stored tensor. `to` is its GGUF name ("" if no rule knows it), `folds` what loading does to it.

    `status`: weight; ignored (its rule says that it is none); unused (this model has no use for it);
    unknown (no rule, so the model is refused).
    """

    name: str
    type: str
    shape: tuple[int, ...]
    n_bytes: int
    file: str
    to: str = ""
    folds: tuple[str, ...] = ()
    status: str = UNKNOWN

    @property
    def n_values(self) -> int:
        return prod(self.shape)


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """Facts by name for the head, and the tensors."""

    facts: Json
    tensors: list[TensorFacts]

    def json(self) -> Json:
        """Everything, as one object."""
        return {**self.facts, "tensors": [asdict(t) for t in self.tensors]}


def inspect_directory(path: Path) -> Found:
    """A directory, even of a model that Camelid cannot run. Raises if its files are damaged or no model."""
    directory = open_hf(path)
    read, reason = _attempt(lambda: _read_hf(directory))
    model, checkpoint = read or (None, None)
    tensors = list(_hf_tensors(directory, model))
    facts: Json = {
        "path": str(path),
        "format": "Hugging Face directory",
        **_verdict(model, reason),
        "model_type": directory.config.get("model_type"),
        **_numbers(tensors, model),
        "files": [_shard(directory, name, tensors) for name in sorted({t.file for t in tensors})],
        "config": directory.config,
        "generation_config": directory.generation,
        "tokenizer": _tokenizer(directory, model, checkpoint),
        "chat_template": directory.chat_template is not None,
    }
    return Found(facts=facts, tensors=tensors)


def inspect_gguf(path: Path) -> Found:
    """A GGUF file's header, even of a model that Camelid cannot run. ModelFormatError if it is damaged."""
    gguf = open_gguf(path)
    model, reason = _attempt(lambda: _read_gguf(gguf, path))
    known = set(gguf.tensors) if model else _known_names(gguf)
    tensors = [_gguf_tensor(t, path.name, t.name in known) for t in gguf.tensors.values()]
    facts: Json = {
        "path": str(path),
        "format": f"GGUF version {gguf.version}",
        **_verdict(model, reason),
        **_numbers(tensors, model),
        "files": [{"name": path.name, "bytes": gguf.file_size, "tensors": len(tensors), "metadata": {}}],
        "metadata": {key: _short(value) for key, value in gguf.metadata.items()},
        "tokenizer": _gguf_tokenizer(gguf),
        "chat_template": "tokenizer.chat_template" in gguf.metadata,
    }
    return Found(facts=facts, tensors=tensors)


def _gguf_tensor(t: GgufTensor, file: str, is_known: bool) -> TensorFacts:
    to, status = (t.name, WEIGHT) if is_known else ("", UNKNOWN)
    return TensorFacts(
        name=t.name, type=t.type, shape=t.shape, n_bytes=t.n_bytes, file=file, to=to, status=status
    )


def _known_names(gguf: Gguf) -> set[str]:
    """The tensors of a refused model that its architecture's row knows, if it has one."""
    name = gguf.metadata.get("general.architecture")
    arch = ARCHS.get(name) if isinstance(name, str) else None
    if arch is None:
        return set()
    checkpoint = checkpoint_of_gguf(gguf)
    spec, _ = _attempt(lambda: read_spec(checkpoint, str(name), arch, {}))
    if spec is None:
        return set()
    fused = {f"blk.{i}.{part}.{end}" for i in range(spec.n_layers) for part in arch.splits for end in ENDINGS}
    return {*tensor_shapes(spec, arch, gguf.tensors), *fused, *(f"{name}.weight" for name in FACTOR_TENSORS)}


def _read_hf(directory: HfDirectory) -> tuple[Model, Checkpoint]:
    checkpoint = checkpoint_of_directory(directory)
    return drive(read_model(checkpoint), _nothing), checkpoint


def _nothing(offset: int, n_bytes: int) -> bytes:
    raise ModelFormatError(f"{n_bytes} bytes at {offset} were asked of a directory; this is a defect")


def _read_gguf(gguf: Gguf, path: Path) -> Model:
    def read(offset: int, n_bytes: int) -> bytes:
        if n_bytes > MAX_FACT_BYTES:
            raise ModelFormatError(f"{path}: a tensor of factors has {n_bytes} bytes", path=str(path))
        with path.open("rb") as file:
            file.seek(offset)
            return file.read(n_bytes)

    return drive(read_model(gguf), read)


def _short(value: MetadataValue) -> Any:
    """The value; of a long list, such as a vocabulary, its length and beginning."""
    if isinstance(value, list) and len(value) > LONG:
        return {"items": len(value), "first": value[:3]}
    return value


def _attempt(read: Callable[[], T]) -> tuple[T | None, str]:
    """What `read` returns, or None and why."""
    try:
        return read(), ""
    except CamelidError as error:
        return None, error.message


def _verdict(model: Model | None, reason: str) -> Json:
    return {"loads_as": model.spec.arch if model else None, "reason": reason or None}


def _numbers(tensors: Iterable[TensorFacts], model: Model | None) -> Json:
    """Numbers in all tensors, and in those that the model uses (None: it does not load)."""
    used = count_parameters(model.weights.values()) if model else None
    return {"parameters": sum(t.n_values for t in tensors), "used_parameters": used, "types": _types(tensors)}


def _types(tensors: Iterable[TensorFacts]) -> Json:
    counts: Counter[str] = Counter()
    sizes: Counter[str] = Counter()
    for t in tensors:
        counts[t.type] += 1
        sizes[t.type] += t.n_bytes
    return {name: {"tensors": n, "bytes": sizes[name]} for name, n in counts.items()}


def _shard(directory: HfDirectory, name: str, tensors: Iterable[TensorFacts]) -> Json:
    header = open_safetensors(directory.files[name])
    n = sum(t.file == name for t in tensors)
    return {"name": name, "bytes": header.file_size, "tensors": n, "metadata": header.metadata}


def _tokenizer(directory: HfDirectory, loaded: Model | None, checkpoint: Checkpoint | None) -> Json | None:
    """Its kind and size as tokenizer.json has them; `reason` says why it cannot be used, where that is so."""
    if not directory.tokenizer:
        return None
    model = directory.tokenizer.get("model")
    own = cast(JsonObject, model) if isinstance(model, dict) else {}
    vocab = own.get("vocab")
    n_tokens = len(cast(Collection[object], vocab)) if isinstance(vocab, dict | list) else 0
    kind, reason = str(own.get("type", "not stated")), ""
    if loaded and checkpoint and checkpoint.no_tokenizer:  # GGUF has no words for it, but the directory may
        _, reason = _attempt(lambda: tokenizer_of(directory, loaded.spec.vocab_size))
    return {"kind": kind, "n_tokens": n_tokens, "reason": reason or None}


def _gguf_tokenizer(gguf: Gguf) -> Json | None:
    kind, tokens = (gguf.metadata.get(f"tokenizer.ggml.{name}") for name in ("model", "tokens"))
    if kind is None:
        return None
    return {"kind": str(kind), "n_tokens": len(tokens) if isinstance(tokens, list) else 0, "reason": None}


def _hf_tensors(directory: HfDirectory, model: Model | None) -> Iterator[TensorFacts]:
    """Each tensor once, in the order of its file, with its rule if there is one."""
    uses = dict(_uses(directory, model))
    for t in sorted(directory.tensors.values(), key=lambda t: (t.file, t.offset, t.name)):
        yield _tensor(t, uses.get(t.name, {}))


def _tensor(t: HfTensor, use: Mapping[str, Any]) -> TensorFacts:
    return TensorFacts(name=t.name, type=t.type, shape=t.shape, n_bytes=t.n_bytes, file=t.file, **use)


def _uses(directory: HfDirectory, model: Model | None) -> Iterator[tuple[str, Json]]:
    """What becomes of each tensor that a rule knows, by its own name."""
    try:
        facts = read_facts(directory)
        naming = name_tensors(directory, facts)
    except CamelidError:  # told as the reason why the model does not load
        return
    for name, found in naming.named.items():
        is_twin = facts.is_tied and name == "output.weight"
        status = UNUSED if is_twin else WEIGHT
        folds = () if is_twin else tuple(_folds(name, found, facts, model))
        yield from ((t.name, {"to": name, "folds": folds, "status": status}) for t in found)
    yield from ((t.name, {"status": IGNORED}) for t in naming.ignored.values())


def _folds(name: str, found: list[HfTensor], facts: Facts, model: Model | None) -> Iterator[str]:
    """What loading does, in words: load ops, stacking, cutting into rows."""
    try:
        weight = fold_tensors(name, found, facts)
    except CamelidError:  # the reason why the model does not load says more
        yield "refused"
        return
    if len(found) > 1 or name.endswith("_exps.weight"):
        yield f"stack {len(found)}"
    yield from (" ".join([op.name, *map(str, op.args)]) for op in weight.load_ops)
    yield from _cuts(weight, facts, model)


def _cuts(weight: Weight, facts: Facts, model: Model | None) -> Iterator[str]:
    """Into which weights of the model a fused one is cut."""
    layer, _, rest = weight.name.rpartition(".")[0].rpartition(".")
    parts = [part for part, _ in facts.arch.splits.get(rest, ())]
    ending = weight.name.removeprefix(f"{layer}.{rest}").removesuffix(".weight")
    made = [model.weights.get(f"{layer}.{part}{ending}") for part in parts] if model else []
    if made and sum(w.shape[0] for w in made if w) == weight.shape[0]:
        yield f"cut into {', '.join(parts)}"
