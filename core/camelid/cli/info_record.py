"""The record behind `info` and `inspect`: facts and tensors of a model, supported or not.

Reads only the headers of a GGUF file or a Hugging Face directory.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any, cast

from camelid.cli.format import format_value, line, printable, size, sizes
from camelid.cli.hub_download import local_path
from camelid.errors import CamelidError
from camelid.formats.gguf import MetadataValue, open_gguf
from camelid.formats.hf_config import HfDirectory, HfTensor, open_hf
from camelid.formats.json_text import JsonObject
from camelid.loading.model_file import ModelFile, find_directory, find_source, has_tokenizer, open_model
from camelid.model.archs import ARCHS
from camelid.model.checkpoint import Checkpoint, checkpoint_of_gguf
from camelid.model.hf import fold_tensors, name_tensors, read_settings
from camelid.model.hf_settings import HfSettings
from camelid.model.spec_reader import FACTOR_TENSORS, read_spec
from camelid.model.tensors import tensor_shapes
from camelid.plan.weights import LoadOp, Weight

Report = dict[str, Any]
LONG = 64  # longest metadata list printed whole, in items
WEIGHT, IGNORED, UNUSED, UNKNOWN = "weight", "ignored", "unused", "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorRecord:
    """One stored tensor, its GGUF name `to` ("" without a rule) and its load ops.

    `n_values` counts its parameters: those of a matrix that MLX quantized are in its words alone.
    `status`: weight; ignored by its rule; unused by this model; unknown (no rule, so the model is refused).
    """

    name: str
    type: str
    shape: tuple[int, ...]
    n_bytes: int
    file: str
    to: str = ""
    folds: tuple[str, ...] = ()
    status: str = UNKNOWN
    packed: int | None = None  # the number of values, if the shape does not state it

    @property
    def n_values(self) -> int:
        return prod(self.shape) if self.packed is None else self.packed


@dataclass(frozen=True, slots=True)
class Record:
    """A model's headers; `file` is None for a refused model, `error` the reason."""

    path: str
    source: HfDirectory | Checkpoint
    file: ModelFile | None
    error: CamelidError | None

    def loaded(self) -> ModelFile:
        """The supported model. Raises the error of an unsupported one."""
        if self.file is None:
            raise self.error or AssertionError("a record has a file or an error")
        return self.file

    def facts(self, tensors: Iterable[TensorRecord]) -> Report:
        """Report of any model: bytes by tensor type, tokenizer and chat template."""
        types: Counter[str] = Counter()
        for t in tensors:
            types[t.type] += t.n_bytes
        source = self.source
        is_hf = isinstance(source, HfDirectory)
        template = source.chat_template if is_hf else source.header.metadata.get("tokenizer.chat_template")
        tokenizer = _hf_tokenizer(source, self.file) if is_hf else _gguf_tokenizer(source)
        stored = {"types": dict(types), **(self._loaded_types() if is_hf else {})}
        return {**stored, "tokenizer": tokenizer, "chat_template": template is not None}

    def _loaded_types(self) -> Report:
        """Bytes by the types that matrices which MLX quantized have when loaded."""
        loaded: Counter[str] = Counter()
        for weight in self.file.checkpoint.tensors.values() if self.file else ():
            loaded[weight.type] += weight.n_bytes if weight.has_planes else 0
        return {"loaded_types": dict(+loaded)} if +loaded else {}

    def settings(self) -> Report:
        """The configuration files, or the GGUF metadata with long lists shortened."""
        if isinstance(self.source, HfDirectory):
            return {"config": self.source.config, "generation_config": self.source.generation}
        return {"metadata": {key: _short(value) for key, value in self.source.header.metadata.items()}}

    def tensors(self) -> list[TensorRecord]:
        """The tensors in stored order, each with its GGUF name and load ops."""
        if isinstance(self.source, HfDirectory):
            return list(_hf_tensors(self.source))
        known = set(self.source.tensors) if self.file else _known_names(self.source)
        return [_gguf_tensor(t, Path(self.path).name, known) for t in self.source.tensors.values()]


def read_record(model: str) -> Record:
    """The record of a path, hub id or "cria". Raises for damaged files, not for an unsupported model."""
    name = local_path(model)
    file, error = None, None
    try:
        file = asyncio.run(open_model(name))
    except CamelidError as refusal:
        error = refusal
    if folder := find_directory(name):
        return Record(name, (file and file.directory) or open_hf(folder), file, error)
    path = find_source(name).handle
    return Record(path, file.checkpoint if file else checkpoint_of_gguf(open_gguf(Path(path))), file, error)


def fact_lines(facts: Mapping[str, Any]) -> Iterator[str]:
    """Report as text, one per line, without absent ones."""
    for name, value in facts.items():
        if value is not None or name == "tokenizer":
            yield line(LABELS.get(name, name), FORMS.get(name, format_value)(value))


def _short(value: MetadataValue) -> Any:
    if not isinstance(value, list) or len(value) <= LONG:
        return value
    return {"items": len(value), "first": value[:3]}


def _hf_tokenizer(directory: HfDirectory, file: ModelFile | None) -> Report | None:
    """Kind and vocabulary size from tokenizer.json, and the reason if it is unsupported."""
    if not directory.tokenizer:
        return None
    model = directory.tokenizer.get("model")
    own = cast(JsonObject, model) if isinstance(model, dict) else {}
    vocab, reason = own.get("vocab"), None
    if file and file.checkpoint.no_tokenizer:  # GGUF cannot express it, but the directory may load
        try:
            file.tokenizer()
        except CamelidError as error:
            reason = error.message
    n_tokens = len(cast(Collection[object], vocab)) if isinstance(vocab, dict | list) else 0
    return {"kind": str(own.get("type", "not stated")), "n_tokens": n_tokens, "reason": reason}


def _gguf_tokenizer(checkpoint: Checkpoint) -> Report | None:
    kind, tokens = (checkpoint.header.metadata.get(f"tokenizer.ggml.{name}") for name in ("model", "tokens"))
    if kind is None or not has_tokenizer(checkpoint.header):
        return None
    return {"kind": str(kind), "n_tokens": len(tokens) if isinstance(tokens, list) else 0, "reason": None}


def _tokenizer_text(tokenizer: Report | None) -> str:
    if tokenizer is None:
        return "none"
    reason = f"; unsupported: {tokenizer['reason']}" if tokenizer["reason"] else ""
    return printable(f"{tokenizer['kind']}, {tokenizer['n_tokens']:,} tokens{reason}")


def _gguf_tensor(t: Weight, file: str, known: Collection[str]) -> TensorRecord:
    source, n_bytes = t.parts[0].source, sum(part.n_bytes for part in t.parts)
    place = source if source.endswith(".gguf") else file  # of a split model
    to, status = (t.name, WEIGHT) if t.name in known else ("", UNKNOWN)
    return TensorRecord(
        name=t.name, type=t.stored_type, shape=t.shape, n_bytes=n_bytes, file=place, to=to, status=status
    )


def _known_names(checkpoint: Checkpoint) -> set[str]:
    """The tensor names of an unsupported model that its architecture's row has a rule for."""
    name = str(checkpoint.header.metadata.get("general.architecture"))
    arch = ARCHS.get(name)
    if arch is None:
        return set()
    try:
        spec = read_spec(checkpoint, name, arch, {})
    except CamelidError:
        return set()
    prefixes = [f"{stack}blk.{i}." for stack in arch.stacks for i in range(spec.n_layers)]
    layers = [prefix + part for prefix in prefixes for part in arch.splits]
    fused = {f"{layer}.{end}" for layer in layers for end in ("weight", "bias")}
    factors = {f"{name}.weight" for name in FACTOR_TENSORS}
    return {*tensor_shapes(spec, arch, checkpoint.tensors), *fused, *factors}


def _hf_tensors(directory: HfDirectory) -> Iterator[TensorRecord]:
    uses: dict[str, Report] = {}
    for name, use in _uses(directory):
        uses[name] = _joined(uses[name], use) if name in uses else use
    for t in sorted(directory.tensors.values(), key=lambda t: (t.file, t.offset, t.name)):
        use = uses.get(t.name, {})
        yield TensorRecord(name=t.name, type=t.type, shape=t.shape, n_bytes=t.n_bytes, file=t.file, **use)


def _joined(first: Report, second: Report) -> Report:
    """The combined use of a tensor that is split into two weights."""
    folds = (*first.get("folds", ()), *second.get("folds", ()))
    return {**second, "to": f"{first['to']}, {second['to']}", "folds": folds}


def _uses(directory: HfDirectory) -> Iterator[tuple[str, Report]]:
    """Stored name, GGUF name, load ops and status of each tensor with a rule."""
    try:
        settings = read_settings(directory)
        naming = name_tensors(directory, settings)
    except CamelidError:  # the record's error has the reason
        return
    for name, found in naming.named.items():
        is_twin = settings.is_tied and name == "output.weight"
        use = {"to": name, "status": UNUSED} if is_twin else {"to": name, "status": WEIGHT}
        folds = () if is_twin else tuple(_folds(name, found, settings))
        for t in found:
            packed = {"packed": prod(t.shape)} if t.planes else {}
            yield t.name, {**use, "folds": folds, **packed}
            yield from ((plane.name, {**use, "packed": 0}) for plane in t.planes[1:])
    yield from ((t.name, {"status": IGNORED}) for t in naming.ignored.values())


def _folds(name: str, found: list[HfTensor], settings: HfSettings) -> Iterator[str]:
    """The load ops of a tensor, in words."""
    try:
        weight = fold_tensors(name, found, settings)
    except CamelidError:  # the record's error has the reason
        yield "refused"
        return
    if name.endswith("_exps.weight") and len(weight.shape) > len(found[0].shape):
        yield f"stack {len(found)}"
    yield from (_op_text(op, weight.type) for op in weight.load_ops)


def _op_text(op: LoadOp, to: str) -> str:
    text = " ".join([op.name, *map(str, op.args)])
    return f"{text} to {to}" if op.name == "join_groups" else text


def _ropes_text(ropes: list[Report]) -> str:
    return "; ".join(map(_rope_text, ropes)) or "none"


def _rope_text(rope: Report) -> str:
    text = f"{rope['kind']}, theta {rope['theta']:,.10g}, {rope['dim']} of {rope['head_dim']}"
    scaling = rope["scaling"]
    factors = ", with factors" if rope["factors"] else ""
    scaled = f", {scaling['kind']} scaling by {scaling['factor']:g}" if scaling else ""
    return f"{text}, {rope['layers']} layers{factors}{scaled}"


# Labels and formats that differ from the JSON keys and values.
LABELS = {"file_bytes": "file_size", "f16_bytes": "size_at_f16", "q4_0_bytes": "size_at_4_bits"}
FORMS: dict[str, Callable[[Any], str]] = {
    "rope": _ropes_text,
    "types": sizes,
    "loaded_types": sizes,
    "tokenizer": _tokenizer_text,
    **dict.fromkeys(LABELS, size),
}
