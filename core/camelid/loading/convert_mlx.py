"""Conversion of a Hugging Face directory to one that MLX quantized, for `camelid quantize --format mlx`.

Memory is bounded by one tile with its planes, or by one tensor that must be transposed.
"""

from __future__ import annotations

import asyncio
import json
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from camelid.errors import CamelidError, RequestError
from camelid.formats.hf_config import CONFIG, MORE_TEMPLATES, PICKLES, HfDirectory
from camelid.formats.hf_weights import SINGLE
from camelid.formats.mlx_quant import KEY, MODES, TWIN, Groups
from camelid.formats.progress import Progress
from camelid.formats.safetensors_writer import Chunks, SafeTensorOut, TensorsOut, write_safetensors
from camelid.formats.whole_directory import unwritable, whole_directory
from camelid.loading.convert import PRECISE, Conversion
from camelid.loading.model_file import fetch_model, find_directory, find_source, open_model
from camelid.model.archs import row_name
from camelid.model.hf_to_mlx import MlxWeight, mlx_weights
from camelid.model.mlx_rows import UNOPENED

if TYPE_CHECKING:
    from camelid.backends.common.load_ops import F32

TILE_VALUES = 1 << 18  # 1 MiB as float32: tiles of 16 MiB leave the caches, and take 1.5 times as long
BITS, SIZES = MODES["affine"]
# Type on the command line -> how matrices are quantized.
MLX_TYPES: Mapping[str, Groups] = {
    **{f"q{bits}": Groups("affine", bits, SIZES[0]) for bits in sorted(BITS)},
    **{name: Groups(name, MODES[name][0][0], MODES[name][1][0]) for name in MODES if name != "affine"},
}
DTYPES = {
    "f16": "float16",
    "bf16": "bfloat16",
}  # of scales and unquantized tensors; as config.json names them
UNQUANTIZED = (*PRECISE, "ffn_gate_inp_shexp")
WEIGHT_FILES = (".safetensors", ".safetensors.index.json", ".gguf", ".h5", ".msgpack", ".onnx", *PICKLES)
Encode: TypeAlias = "Callable[[F32], tuple[bytes, ...]]"


def groups_of(to: str, group_size: int | None) -> Groups:
    """The groups of type `to`. Raises RequestError for an unknown type or group size."""
    if to not in MLX_TYPES:
        raise RequestError(f"MLX has no type {to!r}; known: {', '.join(MLX_TYPES)}", field="type")
    groups = MLX_TYPES[to]
    if group_size is None:
        return groups
    if groups.mode != "affine":
        message = f"groups of {to} always have {groups.size} values; leave out the group size, or choose q4"
        raise RequestError(message, field="group_size")
    if group_size not in SIZES:
        known = ", ".join(map(str, sorted(SIZES)))
        raise RequestError(f"MLX has no groups of {group_size} values; known: {known}", field="group_size")
    return replace(groups, size=group_size)


def convert_mlx(
    model: str | PathLike[str],
    target: str | PathLike[str],
    *,
    to: str,
    group_size: int | None = None,
    pure: bool = False,
    progress: Progress | None = None,
) -> Conversion:
    """Writes the directory `model` as a directory that mlx-lm opens, its matrices quantized to type `to`.

    Norms, biases, routers, positions and convolutions stay floats, as do matrices whose columns are not a
    multiple of the group, with a note; with q2 to q6 the output matrix has 8 bits unless `pure`. Raises
    RequestError for an unknown type, a model that is no directory, and a target that is the source or exists
    with files in it, ModelFormatError if the target cannot be written, and the errors of `open_model`.
    """
    groups, source, folder = groups_of(to, group_size), _directory(model), Path(target)
    _check_target(source, folder)
    file = asyncio.run(open_model(source))
    directory = file.directory
    assert directory is not None
    weights = mlx_weights(directory)
    mix = _Mix(groups, pure, _dtype(directory), _output(weights))
    with whole_directory(folder.absolute()) as part:
        _copy_files(directory, part)
        config = _config(directory, mix, weights)
        (part / CONFIG.name).write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
        out = (_out(each, mix, file.sources) for each in weights.values())
        write_safetensors(part / SINGLE, out, metadata={"format": "mlx"}, progress=progress)
    n_bytes, types = (folder / SINGLE).stat().st_size, Counter(mix.type_of(w, to) for w in weights.values())
    return Conversion(folder, file.n_bytes, n_bytes, types, tuple(_notes(directory, mix, weights)))


def _directory(model: str | PathLike[str]) -> Path:
    """The directory of a name. Raises RequestError for a file, ModelFormatError if there is neither."""
    name = asyncio.run(fetch_model(model))
    source = find_directory(name)
    if source is None:
        raise RequestError(
            f"{find_source(name).name}: a model in MLX's format is made from a Hugging Face directory, since "
            "a GGUF has no config.json; quantize the published directory, or write a GGUF",
            field="model",
        )
    return source


def _check_target(source: Path, target: Path) -> None:
    """Raises RequestError for a target that is the source or that holds anything."""
    if target.exists() and target.samefile(source):
        raise RequestError(f"{target}: the target is the source; give another name", field="target")
    if target.exists() and not target.is_dir():
        message = f"{target} is a file; give the name of a new directory, or of a .gguf without --format mlx"
        raise RequestError(message, field="target")
    if target.is_dir() and any(target.iterdir()):
        raise RequestError(f"{target} is not empty; give the name of a new directory", field="target")


def _dtype(directory: HfDirectory) -> str:
    """The type of scales and unquantized tensors: the source's, by bytes, if it has 16 bits, else bf16."""
    sizes = Counter[str]()
    for tensor in directory.tensors.values():
        sizes[tensor.type] += tensor.n_bytes
    return max((t for t in (*DTYPES, "f32") if t in sizes), key=sizes.__getitem__, default="bf16")


def _output(weights: Mapping[str, MlxWeight]) -> str:
    """The name of the matrix that makes logits: the embedding of a tied model."""
    names = {each.weight.name: name for name, each in weights.items()}
    return names.get("output.weight", names["token_embd.weight"])


@dataclass(frozen=True, slots=True)
class _Mix:
    """The choice of each tensor's type; `source_dtype` may be f32, `dtype` has 16 bits."""

    groups: Groups
    pure: bool
    source_dtype: str
    output: str

    @property
    def dtype(self) -> str:
        return self.source_dtype if self.source_dtype in DTYPES else "bf16"

    def wanted(self, each: MlxWeight) -> Groups | None:
        """The groups of a tensor whose columns divide into them; None: it stays as floats."""
        name = each.weight.name
        if not name.endswith(".weight") or len(each.shape) == 1 or name.split(".")[-2] in UNQUANTIZED:
            return None
        keeps_8 = self.groups.mode == "affine" and each.name == self.output and not self.pure
        return replace(self.groups, bits=8) if keeps_8 else self.groups

    def of(self, each: MlxWeight) -> Groups | None:
        """The groups of a tensor; None: it stays as floats."""
        groups = self.wanted(each)
        return groups if groups and each.shape[-1] % groups.size == 0 else None

    def type_of(self, each: MlxWeight, to: str) -> str:
        """The type for the report."""
        groups = self.of(each)
        return self.dtype if groups is None else to if groups == self.groups else "q8"


def _config(directory: HfDirectory, mix: _Mix, weights: Mapping[str, MlxWeight]) -> dict[str, Any]:
    """The source's config.json with the quantization and the type of unquantized tensors."""
    groups = mix.groups
    stated: dict[str, Any] = {"group_size": groups.size, "bits": groups.bits, "mode": groups.mode}
    for each in weights.values():
        own = mix.of(each)
        if own not in (None, groups):
            stated[each.name.removesuffix(".weight")] = {"group_size": own.size, "bits": own.bits}
    key = "torch_dtype" if "torch_dtype" in directory.config else "dtype"
    return {**directory.config, key: DTYPES[mix.dtype], KEY: stated, TWIN: stated}


def _copy_files(directory: HfDirectory, target: Path) -> None:
    """Copies every file of the source but its weights and config.json, and the folder of more templates."""
    names = [name for name in directory.files if name != CONFIG.name and not name.endswith(WEIGHT_FILES)]
    try:
        for name in names:
            shutil.copyfile(directory.files[name], target / name)
        if (directory.path / MORE_TEMPLATES).is_dir():
            shutil.copytree(directory.path / MORE_TEMPLATES, target / MORE_TEMPLATES)
    except OSError as error:
        raise unwritable(target, error) from error


def _out(each: MlxWeight, mix: _Mix, sources: Mapping[str, Any]) -> TensorsOut:
    """A tensor as floats, or the planes of a quantized matrix."""
    groups = mix.of(each)
    if groups is None:
        plain = SafeTensorOut(each.name, mix.dtype, each.shape)
        return TensorsOut((plain,), _chunks(each, sources, partial(_as_floats, each.weight.name, mix.dtype)))
    path, (*rows, cols) = each.name.removesuffix(".weight"), each.shape
    per_row = (*rows, cols // groups.size)
    kind = mix.dtype if groups.mode == "affine" else "u8"
    planes = (
        SafeTensorOut(each.name, "u32", (*rows, cols * groups.bits // 32)),
        SafeTensorOut(f"{path}.scales", kind, per_row),
        SafeTensorOut(f"{path}.biases", kind, per_row),
    )
    encode = partial(_as_planes, each.weight.name, groups, mix.dtype)
    return TensorsOut(planes[: 3 if groups.mode == "affine" else 2], _chunks(each, sources, encode))


def _as_floats(name: str, dtype: str, values: F32) -> tuple[bytes, ...]:
    from camelid.backends.common.load_ops import encode_rows

    return (encode_rows(name, dtype, values),)


def _as_planes(name: str, groups: Groups, dtype: str, values: F32) -> tuple[bytes, ...]:
    from camelid.backends.common.quantize_groups import quantize_groups

    try:
        return quantize_groups(values, groups, parameters=dtype)
    except CamelidError as error:
        raise type(error)(f"{name}: {error.message}", **{**error.facts, "tensor": name}) from None


def _chunks(each: MlxWeight, sources: Mapping[str, Any], encode: Encode) -> Chunks:
    """A function that yields encoded rows, tile by tile."""

    def chunks() -> Iterator[tuple[bytes, ...]]:
        from camelid.backends.common.load_ops import load_rows, tiles
        from camelid.backends.common.part_reader import PartReader

        with PartReader(sources) as reader:
            for start, n in tiles(each.weight, TILE_VALUES):
                yield encode(load_rows(each.weight, reader.read, start, n))

    return chunks


def _notes(directory: HfDirectory, mix: _Mix, weights: Mapping[str, MlxWeight]) -> Iterator[str]:
    """Yields the losses of the conversion, and the tensors that are not as asked."""
    model_type = row_name(directory.settings)
    if model_type in UNOPENED:
        yield f"mlx-lm 0.32 has no model type {model_type}: Camelid runs the directory, mlx-lm does not"
    floats = [w.name for w in weights.values() if mix.wanted(w) and not mix.of(w)]
    if floats:
        undivided = f"groups of {mix.groups.size} do not divide their rows"
        yield f"{len(floats)} matrices stay {mix.dtype}, as {undivided}, such as {floats[0]}"
    if any(tensor.type == "f32" for tensor in directory.tensors.values()):
        yield f"the source has f32: scales and unquantized tensors are rounded to {mix.dtype}"
    if any(name.endswith(".scales") for name in directory.tensors):
        yield "the source is quantized: more is lost than from the unquantized model"
    if "lm_head.weight" in directory.tensors and "lm_head.weight" not in weights:
        yield "lm_head is left out: tie_word_embeddings is true, and mlx-lm uses the embedding in its place"
