"""Metal kernels: texts of `metal/` with their constants, created through one seam.

A kernel's text is its header's files and its body, with numbers as constants before them, so that functions
of the header see them too. MLX keeps compiled libraries by name; the name of a kernel has a digest of its
text.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, TypeAlias

from camelid.backends.common.grid_tables import GRIDS, VALUES, grid_bytes
from camelid_native.mlx.arrays import Array, Dtype, mx

Value: TypeAlias = int | float | bool | str
Constants: TypeAlias = tuple[tuple[str, Value], ...]
Create: TypeAlias = Callable[..., Any]
create: Create = mx.fast.metal_kernel  # the seam: a rig replaces it
DEVICE_SIZE = 8  # MLX puts smaller inputs into the address space `constant`, where no pointer of ours goes
LANES = 32  # of a simdgroup


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernel:
    """A kernel: files of its header in order, those of its body, and the names of its inputs and outputs.

    `{type}` in a file's name is a weight type's; the files that its codec needs come before it.
    """

    header: tuple[str, ...]
    body: tuple[str, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...] = ("y",)


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """Threadgroups of a launch in x, y and z, and the simdgroups of each."""

    groups: tuple[int, int, int]
    simdgroups: int = 1

    @property
    def threads(self) -> tuple[int, int, int]:
        x, y, z = self.groups
        return x * self.simdgroups * LANES, y, z


@dataclass(frozen=True, slots=True, kw_only=True)
class StepForm:
    """Words of a row and of a sequence in the step (`StepLayout.row_words`, `.sequence_words`)."""

    row_words: int
    sequence_words: int


def launch(
    kernel: Kernel,
    arrays: Mapping[str, Array],
    *,
    constants: Mapping[str, Value],
    grid: Grid,
    shapes: Sequence[tuple[int, ...]],
    dtypes: Sequence[Dtype] = (mx.float32,),
    files: Mapping[str, str] | None = None,
    fill: float | None = None,
) -> list[Array]:
    """Runs a kernel on arrays by input name.

    `files` are names for the places in its header. `fill` is in outputs that no thread writes.
    """
    header = tuple(dict.fromkeys(name.format_map(files or {}) for name in kernel.header))
    made = _created(kernel, header, tuple(constants.items()), create)
    return made(
        inputs=[on_device(arrays[name]) for name in kernel.inputs],
        grid=grid.threads,
        threadgroup=(grid.simdgroups * LANES, 1, 1),
        output_shapes=list(shapes),
        output_dtypes=list(dtypes),
        init_value=fill,
    )


def on_device(array: Array) -> Array:
    """The array, padded if MLX would put it into the address space `constant`."""
    if array.size >= DEVICE_SIZE:
        return array
    return mx.pad(mx.flatten(array), (0, DEVICE_SIZE - array.size))


@cache
def _created(kernel: Kernel, header: tuple[str, ...], constants: Constants, create: Create) -> Any:
    text, body = header_text(header, constants), "\n".join(map(metal, kernel.body))
    digest = hashlib.sha256(f"{text}\0{body}".encode()).hexdigest()[:12]
    return create(
        name=f"{kernel.body[-1]}_{digest}",
        input_names=list(kernel.inputs),
        output_names=list(kernel.outputs),
        source=body,
        header=text,
    )


def forget() -> None:
    """Forgets created kernels, after a text has changed."""
    _created.cache_clear()


def header_text(names: Sequence[str], constants: Constants) -> str:
    """The prelude, the constants and the files of a header."""
    numbers = "".join(f"{constant(name, value)}\n" for name, value in constants)
    return "\n".join([metal("prelude"), numbers, *map(part, names)])


def part(name: str) -> str:
    """The text of a header's file; a codec comes with the files and tables that it needs."""
    needed = CODEC_PARTS.get(name.removeprefix("codec_"), ()) if name.startswith("codec_") else ()
    return "\n".join([*map(_table_or_file, needed), metal(name)])


def constant(name: str, value: Value) -> str:
    """The declaration of a number; a word becomes a macro."""
    match value:
        case bool():
            return f"constant constexpr bool {name} = {str(value).lower()};"
        case int():
            return f"constant constexpr uint {name} = {value};"
        case float():
            return f"constant constexpr float {name} = {value:.9e}f;"
        case str():
            return f"#define {name} {value}"


@cache
def metal(name: str) -> str:
    """The text of a file of `metal/`."""
    return (files("camelid_native.mlx") / "metal" / f"{name}.metal").read_text("utf-8")


def _table_or_file(name: str) -> str:
    if name in VALUES:
        return f"constant char VALUES[] = {{{', '.join(map(str, VALUES[name]))}}};"
    return _grid(name) if name in GRIDS else metal(name)


def _grid(name: str) -> str:
    words = memoryview(grid_bytes(name)).cast("I")
    listed = ", ".join(f"0x{word:08x}" for word in words)
    return f"constant uint GRID[] = {{{listed}}};\nconstant constexpr uint GRID_WIDTH = {GRIDS[name][1]};"


_PLAIN, _SIGNED = ("bits",), ("bits", "signs")
# Type -> what its codec needs before it: files, grids and values. Types without an entry need nothing.
CODEC_PARTS: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(("q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "q2_k", "q3_k", "q6_k"), _PLAIN),
    **dict.fromkeys(("tq1_0", "tq2_0", "q1_0", "q2_0"), _PLAIN),
    **dict.fromkeys(("affine2", "affine3", "affine6", "affine8"), _PLAIN),
    "mxfp8": (),
    **dict.fromkeys(("f64", "i32", "i64"), ("wide",)),
    **dict.fromkeys(("q4_k", "q5_k"), ("bits", "scales_k")),
    **{name: (*_SIGNED, name, "grid") for name in ("iq2_xxs", "iq2_xs", "iq2_s", "iq3_xxs", "iq3_s")},
    **dict.fromkeys(("iq1_s", "iq1_m"), ("bits", "iq1", "grid")),
    **dict.fromkeys(("iq4_nl", "iq4_xs"), ("bits", "iq4")),
    **dict.fromkeys(("mxfp4", "nvfp4"), ("e2m1",)),
}
