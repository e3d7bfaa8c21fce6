"""The load op `join_groups` in NumPy: words, scales and biases of MLX become blocks of the same values."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from camelid.backends.common.codecs import decode, encode
from camelid.backends.common.codecs.bits import unpack_stream
from camelid.errors import ModelFormatError
from camelid.formats.quants import QUANTS
from camelid.plan.weights import LoadOp, Part, Weight

F32: TypeAlias = npt.NDArray[np.float32]
U8: TypeAlias = npt.NDArray[np.uint8]
Planes: TypeAlias = Sequence[U8]  # words, scales and, in mode affine, biases: each [n, bytes of a row]

WAY_OUT = "convert the directory: camelid convert DIRECTORY FILE.gguf --type f32"
BLOCK, DENSE = 32, ("f32", "bf16")
WIDTHS: Mapping[str, int] = {"f16": 2, "bf16": 2, "f32": 4, "u8": 1}  # bytes of a scale


def plane_parts(weight: Weight) -> list[tuple[Part, ...]]:
    """The parts of each plane, which follow each other as rows."""
    n = len(plane_widths(weight.load_ops[0], weight.cols))
    return [weight.parts[i::n] for i in range(n)]


def plane_widths(op: LoadOp, cols: int) -> list[int]:
    """Bytes of a row of each plane."""
    mode, bits, group, parameters = op.args
    each = cols // int(group) * WIDTHS[str(parameters)]
    return [cols * int(bits) // 8, each, each][: 3 if mode == "affine" else 2]


def joined(weight: Weight, planes: Planes) -> U8:
    """Rows of planes as bytes of the weight's stored type, flat.

    Raises ModelFormatError for a scale that the type cannot hold exactly.
    """
    mode, bits, group, parameters = weight.load_ops[0].args
    words, *scales = planes
    if weight.stored_type in DENSE:
        return encode(weight.stored_type, values_of_groups(weight, planes))
    if mode in JOINS:
        return JOINS[mode](weight.name, words, scales[0])
    repeats = int(group) // BLOCK
    values = (np.repeat(_floats(raw, str(parameters)), repeats, axis=1) for raw in scales)
    return _affine(weight, words.reshape(-1, BLOCK * int(bits) // 8), *values)


def values_of_groups(weight: Weight, planes: Planes) -> F32:
    """Values of rows of planes, flat: those of the formats, whatever the weight's type can hold."""
    mode, bits, group, parameters = weight.load_ops[0].args
    words, *scales = planes
    if mode in JOINS:
        return _scaled_values(weight.name, str(mode), words, scales[0], int(bits))
    d, m = (_floats(raw, str(parameters))[..., None] for raw in scales)  # [n, groups, 1]
    q = unpack_stream(words, bits=int(bits)).reshape(*d.shape[:2], int(group))
    return (q.astype(np.float32) * d + m).reshape(-1)


def _scaled_values(name: str, mode: str, words: U8, scales: U8, bits: int) -> F32:
    """Values of whole blocks, the last one padded, since rows of nvfp4 may end within a block."""
    n, block = words.size * 8 // bits, QUANTS[mode].block
    n_blocks = -(-n // block)
    q = _padded(words, n_blocks * block * bits // 8)
    return decode(
        mode, JOINS[mode](name, q, _padded(scales, n_blocks * block * scales.size // n)), n_blocks * block
    )[:n]


def _padded(data: U8, size: int) -> U8:
    return np.concatenate([data.ravel(), np.zeros(size - data.size, np.uint8)])


def _floats(raw: U8, kind: str) -> F32:
    """[n, groups * width] -> [n, groups]."""
    n, width = raw.shape[0], WIDTHS[kind]
    return decode(kind, np.ascontiguousarray(raw), raw.size // width).reshape(n, -1)


def _affine(weight: Weight, packed: U8, scales: F32, biases: F32) -> U8:
    """Blocks {d: f16, m: f16, q} of 32 columns."""
    d, m = _halves(scales), _halves(biases)  # [blocks, 1]
    wide, lost = (_differs(h, v) for h, v in ((d, scales), (m, biases)))
    # MLX sets the scale of a group of equal values to 1e-7. Its integers are 0: no value depends on it.
    used = wide & packed.any(axis=1)
    for what, wrong, values in (("scale", used, scales), ("bias", lost, biases)):
        if wrong.any():
            raise _too_wide(weight, what, float(values.ravel()[wrong][0]))
    d[wide] = 0
    packing = PACKINGS.get(weight.stored_type, _same)
    return np.hstack([d.view(np.uint8), m.view(np.uint8), packing(packed)]).reshape(-1)


def _halves(values: F32) -> npt.NDArray[np.float16]:
    with np.errstate(over="ignore"):
        return values.reshape(-1, 1).astype("<f2")


def _differs(halves: npt.NDArray[np.float16], values: F32) -> npt.NDArray[np.bool_]:
    return halves.astype(np.float32).ravel() != values.ravel()


def _too_wide(weight: Weight, what: str, value: float) -> ModelFormatError:
    return ModelFormatError(
        f"{weight.name}: the {what} {value:g} does not fit {weight.stored_type}, which has f16 for it (steps "
        f"of 2^-24 up to 65504); {WAY_OUT}",
        tensor=weight.name,
        got=value,
    )


def _same(packed: U8) -> U8:
    return packed


def _q4_1(packed: U8) -> U8:
    """[blocks, 16]: neighbours in a byte become values 16 places apart."""
    low, high = packed & np.uint8(15), packed >> np.uint8(4)  # values 0, 2, .. and 1, 3, ..
    q = np.stack([low, high], axis=2).reshape(len(packed), 2, 16)
    return q[:, 0] | q[:, 1] << np.uint8(4)


def _q5_1(packed: U8) -> U8:
    """[blocks, 20] -> [blocks, 4 + 16]: fifth bits, then low nibbles 16 places apart."""
    q = unpack_stream(packed, bits=5)  # [blocks, 32]
    fifth = np.packbits(q >> np.uint8(4), axis=1, bitorder="little")
    low = q & np.uint8(15)
    return np.hstack([fifth, low[:, :16] | low[:, 16:] << np.uint8(4)])


def _of_groups(packed: U8) -> U8:
    """[blocks, 32]: four groups of 16, in which neighbours in a byte become values 8 places apart."""
    low, high = packed & np.uint8(15), packed >> np.uint8(4)
    q = np.stack([low, high], axis=2).reshape(-1, 2, 8)  # [groups, halves, 8]
    return (q[:, 0] | q[:, 1] << np.uint8(4)).reshape(len(packed), -1)


def _scaled(name: str, words: U8, scales: U8, *, packing: Callable[[U8], U8], each: int, top: int) -> U8:
    """Blocks {scales: u8[each], q}. Raises ModelFormatError for a code above `top`: NaN, or a sign."""
    if scales.max(initial=0) > top:
        code = int(scales.max())
        message = f"{name}: the scale of code {code} is no positive number; the file is damaged"
        raise ModelFormatError(message, tensor=name, got=code)
    scales = scales.reshape(-1, each)
    return np.hstack([scales, packing(words.reshape(len(scales), -1))]).reshape(-1)


JOINS: Mapping[object, Callable[[str, U8, U8], U8]] = {
    "mxfp4": partial(_scaled, packing=_q4_1, each=1, top=254),
    "mxfp8": partial(_scaled, packing=_same, each=1, top=254),
    "nvfp4": partial(_scaled, packing=_of_groups, each=4, top=126),
}
PACKINGS: Mapping[str, Callable[[U8], U8]] = {"q4_1": _q4_1, "q5_1": _q5_1}


def n_rows(weight: Weight) -> int:
    """Stored rows of the planes."""
    width = plane_widths(weight.load_ops[0], weight.cols)[0]
    return sum(part.n_bytes for part in plane_parts(weight)[0]) // width
