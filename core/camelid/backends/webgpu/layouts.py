"""Device layouts of weights: one row per weight type, with its planes in a storage buffer.

GGUF's blocks are aligned to two bytes, and a WGSL kernel loads 16 bytes at once. Loading therefore splits the
blocks of a tensor into planes: a plane has the same bytes of all blocks, one block after the other. Planes
are padded to 16 bytes; some types have a codebook after them.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from camelid.backends.common.grid_tables import book_bytes
from camelid.formats.quants import QUANTS
from camelid.plan.weights import Weight

STAGING, STAGING_BYTES = "staging", 4 << 20  # buffer of uploaded bytes, the input of load kernels
TASK, TASK_BYTES = "task", 4 << 10  # buffer of a load kernel's parameters
READ_WRITE = ("storage", "copy_dst", "copy_src")
ALIGNMENT = 16  # bytes; of a plane

Plane = tuple[int, int]  # first byte and bytes of a block


@dataclass(frozen=True, slots=True)
class WeightLayout:
    """The device layout of a weight type.

    - `files` are the shader files of its codec.
    - `planes` split a block; without planes the buffer has the file's bytes.
    - `span` is the distance of the two runs of a chunk in weights; see chunk.wgsl.
    - `book` names the codebook that follows the planes.
    - `bits` are those of a code in a stream, for codec_affine.wgsl.
    - `pair` is the distance of the two weights of a byte, for codecs with pairs.wgsl.
    - `scales` counts the scales of a chunk whose runs are side by side.
    - `shift`: the weights of the type are integers in bytes, those of the second run times 2^shift; None for
      other types. `zero` is the integer of a weight of 0, if all chunks have the same. See packed.wgsl.
    """

    files: tuple[str, ...]
    planes: tuple[Plane, ...] = ()
    span: int = 16
    book: str = ""
    scales: int = 1
    shift: int | None = None
    zero: int = 0
    pair: int = 0
    bits: int = 0


def _row(name: str, *planes: Plane, more: tuple[str, ...] = (), **facts: Any) -> tuple[str, WeightLayout]:
    return name, WeightLayout(("chunk", "quants", *more, f"codec_{name}"), planes, **facts)


def _packed(
    name: str,
    *planes: Plane,
    more: tuple[str, ...] = (),
    shift: int = 0,
    is_signed: bool = False,
    **facts: Any,
) -> tuple[str, WeightLayout]:
    sign = "packed_signed" if is_signed else "packed_unsigned"
    return _row(name, *planes, more=("packed", sign, *more), shift=shift, **facts)


def _signed(name: str, *planes: Plane, entry: int, **facts: Any) -> tuple[str, WeightLayout]:
    """The row of a type with signs, and a codebook of magnitudes with entries of `entry` bytes."""
    return _packed(name, *planes, more=("signs", f"grid_{entry}"), book=name, zero=64, **facts)


def _pairs(name: str, *planes: Plane, pair: int = 16, **facts: Any) -> tuple[str, WeightLayout]:
    return _row(name, *planes, more=("pairs",), shift=0, pair=pair, **facts)


def _affine(bits: int) -> tuple[str, WeightLayout]:
    """The row of a type whose codes are a stream of a few bits each."""
    files = ("chunk", "quants", "packed", "packed_unsigned", "codec_affine")
    return f"affine{bits}", WeightLayout(files, ((4, 4 * bits), (0, 4)), shift=0, bits=bits)


LAYOUTS: dict[str, WeightLayout] = dict(
    (
        _row("f32"),
        _row("f16"),
        _row("bf16"),
        _row("f64"),
        _row("i8"),
        _row("i16"),
        _row("i32"),
        _row("i64"),
        _packed("q4_0", (2, 16), (0, 2), shift=4, zero=8),
        _packed("q4_1", (4, 16), (0, 4), shift=4),
        _packed("q5_0", (6, 16), (2, 4), (0, 2), zero=16),
        _packed("q5_1", (8, 16), (0, 8)),
        _packed("q8_0", (2, 32), (0, 2), is_signed=True),
        _packed("q2_k", (0, 80), (80, 4), span=32, shift=2),
        _packed("q3_k", (0, 96), (96, 12), (108, 2), span=32, shift=2, zero=4),
        _packed("q4_k", more=("scales_k",), span=32, shift=4),
        _packed("q5_k", more=("scales_k",), span=32),
        _packed("q6_k", (0, 208), (208, 2), span=64, zero=32),
        _packed("iq1_s", (2, 48), (0, 2), more=("grid_8",), book="iq1"),
        _packed("iq1_m", (0, 48), (48, 8), more=("grid_8",), book="iq1", scales=2, zero=9),
        _signed("iq2_xxs", (2, 64), (0, 2), entry=8),
        _signed("iq2_xs", (2, 64), (66, 8), (0, 2), entry=8, scales=2),
        _signed("iq2_s", (2, 80), (0, 2), entry=8, scales=2),
        _signed("iq3_xxs", (2, 96), (0, 2), entry=4),
        _signed("iq3_s", (2, 108), (0, 2), entry=4),
        _pairs("iq4_nl", (2, 16), (0, 2), book="iq4"),
        _pairs("iq4_xs", (8, 128), (0, 8), book="iq4"),
        _packed("tq1_0", (0, 48), (48, 4), (52, 2), zero=1),
        _packed("tq2_0", (0, 64), (64, 2), span=32, shift=2, zero=1),
        _pairs("mxfp4", (1, 16), (0, 1), book="e2m1"),
        _pairs("nvfp4", (4, 32), (0, 4), book="e2m1", scales=2, pair=8),
        _packed("q1_0", (2, 16), (0, 2)),
        _packed("q2_0", (2, 16), (0, 2), zero=1),
        _affine(2),
        _affine(3),
        _affine(6),
        _row("affine8", (4, 32), (0, 4), shift=0),
        _row("mxfp8", (1, 32), (0, 1)),
    )
)


# Types whose weights multiply 8-bit activations in integers.
PACKED = frozenset(name for name, layout in LAYOUTS.items() if layout.shift is not None)


def n_blocks(weight: Weight) -> int:
    return weight.rows * weight.cols // QUANTS[weight.type].block


def planes_of(type_: str) -> tuple[Plane, ...]:
    """The planes of a type; a single one without a split."""
    return LAYOUTS[type_].planes or ((0, QUANTS[type_].block_bytes),)


def plane_words(weight: Weight) -> list[int]:
    """Word offset of each plane, and of the end of the last."""
    sizes = (_aligned(n_blocks(weight) * width) for _, width in planes_of(weight.type))
    return [at // 4 for at in accumulate(sizes, initial=0)]


def codec_constants(weight: Weight) -> dict[str, float]:
    """Values of a codec's overrides."""
    layout, words = LAYOUTS[weight.type], plane_words(weight)
    planes: dict[str, float] = {f"PLANE_{i}": word for i, word in enumerate(words[:-1]) if i}
    scales = layout.scales if layout.span == 16 else 2
    shape = {"SPAN": layout.span // 4, "SCALES": scales, "PAIR": layout.pair // 4}
    shape |= {"SHIFT": layout.shift or 0, "ZERO": layout.zero}
    own = {"BOOK": words[-1]} if layout.book else {"BITS": layout.bits} if layout.bits else {}
    return shape | planes | own


def device_bytes(weight: Weight) -> int:
    """Bytes of the weight's buffer. Without planes, these are its bytes in the file."""
    layout = LAYOUTS[weight.type]
    if not layout.planes:
        return weight.n_bytes
    return 4 * plane_words(weight)[-1] + (len(book_bytes(layout.book)) if layout.book else 0)


def more_bytes(type_: str) -> int:
    """The most bytes of a weight's buffer beyond its blocks: the padding of planes, and a codebook."""
    book = LAYOUTS[type_].book
    return ALIGNMENT * len(planes_of(type_)) + (_aligned(len(book_bytes(book))) if book else 0)


def reads_words(type_: str) -> bool:
    """True if the codec reads single words, too: fields behind the first plane, or a codebook."""
    return bool(LAYOUTS[type_].planes)


def row_multiple(type_: str) -> int:
    """The columns of a weight are a multiple of this number, so that each row starts at 16 bytes."""
    row = QUANTS[type_]
    return max(8, ALIGNMENT // row.block_bytes) if row.block == 1 else row.block


def buffer_name(weight: Weight) -> str:
    return f"weight/{weight.name}"


def bound_bytes(weight: Weight) -> int:
    """Bytes of the binding of the whole buffer."""
    return _aligned(device_bytes(weight))


def _aligned(n_bytes: int) -> int:
    return -(-n_bytes // ALIGNMENT) * ALIGNMENT
