"""Conversion of a model's file or directory to a GGUF of another type, for `camelid convert`.

Weights are converted in tiles, so memory is bounded by one tile, or by one tensor that must be transposed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

from camelid.errors import RequestError
from camelid.formats.gguf_header import MetadataValue
from camelid.formats.gguf_writer import TensorOut, infer_kinds, write_gguf
from camelid.formats.progress import Progress
from camelid.formats.quants import GGUF_TYPES
from camelid.loading.model_file import ModelFile, open_model
from camelid.model.arch import ELEMENTWISE
from camelid.model.sizes import type_at
from camelid.plan.weights import Weight

TILE_VALUES = 4 << 20  # 16 MiB as float32

# Types of a whole file, with their general.file_type (LLAMA_FTYPE_MOSTLY_* of llama.cpp).
FILE_TYPES: Mapping[str, int] = {
    "f32": 0, "f16": 1, "q4_0": 2, "q4_1": 3, "q8_0": 7, "q5_0": 8, "q5_1": 9, "bf16": 32,
}  # fmt: skip
CONVERT_TYPES = ("f32", "f16", "bf16", "q8_0")  # for users; camelid quantize writes the others
FLOATS = ("f32", "f16", "bf16")
# Never quantized: small tensors that decide routing or positions.
PRECISE = ("ffn_gate_inp", "position_embd", "token_types", "bias", *ELEMENTWISE)
WINDOWLESS = ("llama", "starcoder2")  # architectures whose window llama.cpp ignores


@dataclass(frozen=True, slots=True)
class Conversion:
    """A conversion's result: the file, bytes before and after, the number of tensors by type, and notes."""

    path: Path
    source_bytes: int
    n_bytes: int
    types: Mapping[str, int]
    notes: tuple[str, ...]


def convert(
    model: str | PathLike[str],
    target: str | PathLike[str],
    *,
    to: str = "",
    progress: Progress | None = None,
) -> Conversion:
    """Writes `model` as a GGUF whose matrices have type `to`; without `to`, each keeps its type.

    Norms, biases, routers and positions are float32. Matrices whose rows are not a multiple of the block
    become f16, with a note. Raises RequestError for a type that cannot be written or a target that is the
    source, and the errors of `open_model`.
    """
    if to and to not in FILE_TYPES:
        raise RequestError(f"type {to!r} cannot be written; known: {', '.join(FILE_TYPES)}", field="type")
    file = asyncio.run(open_model(model))
    check_target(file.sources, Path(target))
    weights = list(file.checkpoint.tensors.values())
    types = {w.name: stored_as(w, to) for w in weights}
    _check_types(file, types)
    metadata = _metadata(file, types, to)
    tensors = [tensor_out(w, types[w.name], file.sources) for w in weights]
    kinds = infer_kinds(metadata, {k: v for k, v in file.gguf.kinds.items() if k in metadata})
    write_gguf(target, metadata=metadata, kinds=kinds, tensors=tensors, progress=progress)
    counts = {name: sum(t == name for t in types.values()) for name in dict.fromkeys(types.values())}
    notes = tuple(_notes(file, types, to))
    return Conversion(Path(target), file.n_bytes, Path(target).stat().st_size, counts, notes)


def check_target(sources: Mapping[str, Any], target: Path) -> None:
    """Raises RequestError for a target that is a source, which writing would destroy, and for a directory."""
    paths = [Path(handle) for handle in sources.values() if isinstance(handle, str)]
    if target.exists() and any(target.samefile(path) for path in paths if path.exists()):
        raise RequestError(f"{target}: the target is the source; give another name", field="target")
    if target.is_dir():
        raise RequestError(f"{target} is a directory; give the name of a .gguf file", field="target")


def _check_types(file: ModelFile, types: Mapping[str, str]) -> None:
    """Raises RequestError for a type of MLX's that GGUF cannot store."""
    own = sorted({kind for kind in types.values() if kind not in GGUF_TYPES})
    if own:
        raise RequestError(
            f"{file.name}: a GGUF cannot store {', '.join(own)}; give a type to convert to, such as "
            "--type f32 (nothing is lost) or --type q8_0",
            field="type",
        )


def stored_as(weight: Weight, to: str = "") -> str:
    """The type that a weight is written as, without `to` its own; vectors and precise matrices are f32, but
    positions beside a quantized type f16."""
    name = weight.name.removesuffix(".weight").rpartition(".")[2]
    if len(weight.shape) == 1 or name in PRECISE:
        return "f16" if name == "position_embd" and to not in ("", *FLOATS) else "f32"
    return type_at(weight.shape, to) if to else weight.type


def directory_metadata(file: ModelFile) -> dict[str, MetadataValue]:
    """The metadata of a GGUF of the model. Raises UnsupportedModelError for a tokenizer that GGUF lacks."""
    if file.checkpoint.no_tokenizer:
        raise file.checkpoint.no_tokenizer
    metadata = dict(file.gguf.metadata)
    metadata.setdefault(f"{file.model.spec.arch}.vocab_size", file.model.spec.vocab_size)
    metadata.setdefault("tokenizer.ggml.model", "none")
    return metadata


def _metadata(file: ModelFile, types: Mapping[str, str], to: str) -> dict[str, MetadataValue]:
    """The source's metadata with the file type of the result."""
    metadata = directory_metadata(file)
    matrices = [t for t in types.values() if t != "f32"]
    common = to or max(dict.fromkeys(matrices), key=matrices.count, default="f32")
    if common in FILE_TYPES:
        metadata["general.file_type"] = FILE_TYPES[common]
    metadata["general.quantization_version"] = 2
    return metadata


def _notes(file: ModelFile, types: Mapping[str, str], to: str) -> Iterator[str]:
    """Yields the losses of the conversion, and differences to llama.cpp."""
    if "tokenizer.ggml.model" not in file.gguf.metadata:
        yield "there is no tokenizer.json, so the file has no tokenizer"
    yield from file.checkpoint.losses
    if file.model.spec.arch in WINDOWLESS and any(layer.window for layer in file.model.spec.layers):
        yield "llama.cpp has no window for this architecture: beyond the window its answers will differ"
    fallback = [name for name, t in types.items() if to not in ("", "f16") and t == "f16"]
    if fallback:
        n, first = len(fallback), fallback[0]
        yield f"{n} tensors are f16, as {to} blocks do not divide their rows, such as {first}"
    before = {w.type for w in file.checkpoint.tensors.values()} - set(FLOATS)
    if to and before - {to}:
        yield f"from {', '.join(sorted(before))}: more is lost than from the unquantized model"


def tensor_out(weight: Weight, to: str, sources: Mapping[str, Any]) -> TensorOut:
    """One tensor of the result, in its own type or encoded anew."""
    chunks = stored_tiles(weight, sources) if to == weight.type else _encoded(weight, to, sources)
    return TensorOut(weight.name, to, weight.shape, chunks)


def stored_tiles(weight: Weight, sources: Mapping[str, Any]) -> Callable[[], Iterator[bytes]]:
    """A function that yields rows in the weight's own type, tile by tile; load ops that only move rows keep
    their bytes."""

    def chunks() -> Iterator[bytes]:
        from camelid.backends.common.load_ops import tiles
        from camelid.backends.common.part_reader import PartReader
        from camelid.backends.common.stored_rows import stored_rows

        with PartReader(sources) as reader:
            stored = stored_rows(weight, reader.read)
            for start, n in tiles(weight, TILE_VALUES):
                yield stored(start, n).tobytes()

    return chunks


def _encoded(weight: Weight, to: str, sources: Mapping[str, Any]) -> Callable[[], Iterator[bytes]]:
    """A function that yields decoded, folded and encoded rows, tile by tile."""

    def chunks() -> Iterator[bytes]:
        from camelid.backends.common.load_ops import encode_rows, load_rows, tiles
        from camelid.backends.common.part_reader import PartReader

        with PartReader(sources) as reader:
            for start, n in tiles(weight, TILE_VALUES):
                yield encode_rows(weight.name, to, load_rows(weight, reader.read, start, n))

    return chunks
