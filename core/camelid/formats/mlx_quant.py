"""Matrices that MLX quantized, in a Hugging Face directory: settings, and planes as one tensor.

A matrix X is quantized if there is X.scales. X.weight has u32 words [..., out, in * bits / 32]: each row is
one little-endian stream of integers, lowest bits first. Each group of `group_size` columns has a scale and,
in mode affine, a bias, [..., out, in / group_size]:

- affine: q * scale + bias, both in the model's dtype
- mxfp4, mxfp8: E2M1 or E4M3 times E8M0, groups of 32
- nvfp4: E2M1 times E4M3, groups of 16

Source: mlx.core.quantize of MLX 0.32.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from camelid.errors import TensorShapeError, UnsupportedModelError
from camelid.formats.hf_weights import HfTensor
from camelid.formats.mxfp4 import METHOD
from camelid.formats.quants import quant, row_bytes
from camelid.formats.settings import Config

KEY, TWIN = "quantization", "quantization_config"  # mlx-lm writes the same object under both keys
PARAMETERS = ("f16", "bf16", "f32")  # of mode affine
# Mode -> bits and group sizes, the defaults first.
MODES: Mapping[str, tuple[tuple[int, ...], tuple[int, ...]]] = {
    "affine": ((4, 2, 3, 5, 6, 8), (64, 32, 128)),
    "mxfp4": ((4,), (32,)),
    "mxfp8": ((8,), (32,)),
    "nvfp4": ((4,), (16,)),
}
# The type of bits in mode affine; other modes are types by name.
AFFINE_TYPES: Mapping[int, str] = {
    2: "affine2", 3: "affine3", 4: "q4_1", 5: "q5_1", 6: "affine6", 8: "affine8",
}  # fmt: skip
FIELDS = frozenset({"group_size", "bits", "mode"})


@dataclass(frozen=True, slots=True)
class Groups:
    """The quantization of a matrix: mode, bits of a value, columns of a group."""

    mode: str
    bits: int
    size: int


@dataclass(frozen=True, slots=True)
class Quantization:
    """The setting of all quantized matrices, and by module path those with another; None: not quantized."""

    default: Groups
    others: Mapping[str, Groups | None]

    def of(self, path: str) -> Groups | None:
        return self.others.get(path, self.default)


def read_quantization(config: Config) -> Quantization | None:
    """The quantization that config.json states; None without MLX's.

    Raises UnsupportedModelError for a mode, bits or group size that MLX does not have, ModelFormatError for a
    value of another type.
    """
    key = next((key for key in (KEY, TWIN) if config.has(key)), None)
    if key is None or _other_library(config):
        return None
    section = config.section(key)
    paths = {name: value for name, value in section.values.items() if name not in FIELDS}
    return Quantization(_groups(section), {path: _other(section, path, paths[path]) for path in paths})


def refuse_other_library(config: Config) -> None:
    """Raises UnsupportedModelError for a quantization by another library, such as GPTQ or AWQ.

    Blocks of MXFP4 (mxfp4.py) are no library's.
    """
    if _other_library(config) and config.section(TWIN).text("quant_method") != METHOD:
        raise _unsupported(config, TWIN, config.section(TWIN).text("quant_method"), ("MLX's", "null"))


def _other_library(config: Config) -> bool:
    return config.has(TWIN) and not config.has(KEY) and config.section(TWIN).has("quant_method")


def _other(section: Config, name: str, value: object) -> Groups | None:
    if isinstance(value, bool):
        return _groups(section) if value else None
    return _groups(section.section(name))


def _groups(section: Config) -> Groups:
    mode = section.text("mode", "affine")
    if mode not in MODES:
        raise _unsupported(section, "mode", mode, tuple(MODES))
    bits, sizes = MODES[mode]
    found = Groups(mode, section.count("bits", bits[0]), section.count("group_size", sizes[0]))
    if found.bits not in bits:
        raise _unsupported(section, f"bits of {mode}", found.bits, bits)
    if found.size not in sizes:
        raise _unsupported(section, f"group_size of {mode}", found.size, sizes)
    return found


def _unsupported(
    section: Config, key: str, value: object, known: tuple[object, ...]
) -> UnsupportedModelError:
    names = ", ".join(map(str, known))
    return UnsupportedModelError(
        f"{section.path}: {section.prefix}{key} is {value!r}, which is not supported; supported: {names}. "
        "Load the unquantized original",
        kind=key,
        name=str(value),
        known=names,
    )


def fold_planes(tensors: Mapping[str, HfTensor], quantization: Quantization | None) -> dict[str, HfTensor]:
    """The tensors with each quantized matrix as one tensor of its values' shape.

    Raises TensorShapeError if words, scales and biases do not fit, UnsupportedModelError for planes without a
    stated quantization and for global scales.
    """
    matrices = {name.removesuffix(".scales") for name in tensors if name.endswith(".scales")}
    planes = {f"{path}.{plane}" for path in matrices for plane in ("scales", "biases")}
    plain = {name: tensor for name, tensor in tensors.items() if name not in planes}
    for path in matrices:
        name = f"{path}.weight"
        plain[name] = _matrix(path, _planes(path, tensors), quantization)
    return plain


def _planes(path: str, tensors: Mapping[str, HfTensor]) -> list[HfTensor]:
    """Words, scales and, in mode affine, biases of a matrix."""
    if f"{path}.global_scale" in tensors:
        raise UnsupportedModelError(
            f"{path}.global_scale: scales of a whole matrix are not supported; quantize without them",
            kind="tensor",
            name="global_scale",
        )
    if f"{path}.weight" not in tensors:
        raise _misfit(path, "scales alone", f"{path}.weight beside them")
    names = (f"{path}.{plane}" for plane in ("weight", "scales", "biases"))
    return [tensors[name] for name in names if name in tensors]


def _matrix(path: str, planes: list[HfTensor], quantization: Quantization | None) -> HfTensor:
    groups = quantization.of(path) if quantization else None
    if groups is None:
        stated = "states no quantization" if quantization is None else f"states that {path} is not quantized"
        raise UnsupportedModelError(
            f"{path}.scales: the matrix is quantized, but config.json {stated}; copy config.json from where "
            "the weights are from",
            kind="tensor",
            name=f"{path}.scales",
        )
    words, scales, *biases = planes
    _check_columns(path, planes)
    cols = scales.shape[-1] * groups.size
    shape = (*words.shape[:-1], cols)
    _check(path, groups, planes, cols)
    parameters = scales.type if biases else "u8"
    type_ = type_of(groups, parameters, cols)
    n_bytes = row_bytes(type_, cols) * (words.n_bytes * 8 // (groups.bits * cols))
    return replace(
        words,
        type=type_,
        shape=shape,
        n_bytes=n_bytes,
        planes=tuple(planes),
        groups=(groups.mode, groups.bits, groups.size, parameters),
    )


def type_of(groups: Groups, parameters: str, cols: int) -> str:
    """The type that groups become, with the same values: floats where no type's scales are wide enough, or
    where its blocks do not divide the rows."""
    if groups.mode != "affine":
        return groups.mode if cols % quant(groups.mode).block == 0 else "bf16"
    return "f32" if parameters == "f32" else AFFINE_TYPES[groups.bits]


def _check_columns(path: str, planes: list[HfTensor]) -> None:
    """Raises TensorShapeError for a plane without columns: sizes of the matrix come from them."""
    if not all(plane.shape and plane.shape[-1] for plane in planes):
        raise _misfit(path, f"shapes {[list(plane.shape) for plane in planes]}", "at least one column")


def _check(path: str, groups: Groups, planes: list[HfTensor], cols: int) -> None:
    """Raises TensorShapeError unless planes have the types and shapes of these groups."""
    for problem, want in _problems(groups, planes, cols):
        raise _misfit(path, problem, want)


def _problems(groups: Groups, planes: list[HfTensor], cols: int) -> Iterator[tuple[str, str]]:
    words, scales, *biases = planes
    is_affine = groups.mode == "affine"
    if len(biases) != is_affine:
        yield f"{len(planes)} planes", f"biases in mode affine alone, not in {groups.mode}"
    if words.type != "u32" or words.shape[-1] * 32 != cols * groups.bits:
        stated = f"{groups.bits} bits in groups of {groups.size}"
        yield f"{words.type} {list(words.shape)} with {scales.shape[-1]} scales a row", stated
    if words.shape[:-1] != scales.shape[:-1] or any(b.shape != scales.shape for b in biases):
        yield f"shapes {[list(p.shape) for p in planes]}", "as many rows in all, and as many biases as scales"
    types = {plane.type for plane in planes[1:]}
    if len(types) > 1 or not types <= {*(PARAMETERS if is_affine else ("u8",))}:
        yield f"scales of {', '.join(sorted(types))}", "one type of f16, bf16, f32 in mode affine, else u8"


def _misfit(path: str, got: str, want: str) -> TensorShapeError:
    return TensorShapeError(
        f"{path}: found {got}, expected {want}, as {KEY} of config.json states", name=path, got=got, want=want
    )
