"""Conversion of a directory's vision tower to an mmproj file, for `camelid convert --mmproj`."""

from __future__ import annotations

from os import PathLike, fspath
from pathlib import Path

from camelid.errors import RequestError
from camelid.formats.gguf_writer import infer_kinds, write_gguf
from camelid.formats.hf_config import open_hf
from camelid.formats.progress import Progress
from camelid.loading.convert import CONVERT_TYPES, FILE_TYPES, Conversion, tensor_out
from camelid.model.sizes import type_at
from camelid.model.vision.hf import has_tower, tower_of_hf
from camelid.model.vision.read import read_tower
from camelid.plan.weights import Weight

PRECISE = ("v.position_embd.weight", "v.patch_embd.weight", "v.patch_embd.weight.1")


def convert_tower(
    model: str | PathLike[str],
    target: str | PathLike[str],
    *,
    to: str = "",
    progress: Progress | None = None,
) -> Conversion:
    """Writes the vision tower of a directory as a GGUF whose matrices have type `to` (default: their own).

    Vectors, positions and the patches' map are float32. Raises RequestError for a type that cannot be written
    and for a directory without a tower, and the errors of `read_tower`.
    """
    if to and to not in CONVERT_TYPES:
        raise RequestError(f"type {to!r} cannot be written; known: {', '.join(CONVERT_TYPES)}", field="type")
    path = Path(fspath(model))
    if not path.is_dir() or not has_tower(directory := open_hf(path)):
        raise RequestError(
            f"{path}: there is no vision tower; give a directory of a model with one", field="model"
        )
    checkpoint = tower_of_hf(directory)
    read_tower(checkpoint)  # refuses what could not be read again
    weights = list(checkpoint.tensors.values())
    types = {w.name: _type_of(w, to) for w in weights}
    metadata = {**checkpoint.header.metadata, "general.file_type": FILE_TYPES[to or "f32"]}
    sources = {name: str(file) for name, file in directory.files.items()}
    tensors = [tensor_out(w, types[w.name], sources) for w in weights]
    write_gguf(target, metadata=metadata, kinds=infer_kinds(metadata), tensors=tensors, progress=progress)
    counts = {name: sum(t == name for t in types.values()) for name in dict.fromkeys(types.values())}
    source_bytes = checkpoint.header.file_size
    return Conversion(Path(target), source_bytes, Path(target).stat().st_size, counts, ())


def _type_of(weight: Weight, to: str) -> str:
    if len(weight.shape) == 1 or weight.name in PRECISE:
        return "f32"
    return type_at(weight.shape, to) if to else weight.type
