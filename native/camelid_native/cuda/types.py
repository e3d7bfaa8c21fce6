"""Weight types: the planes that a block becomes, and codebooks. codec_TYPE.h reads the planes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

# Ranges of the larger fields first, at multiples of their alignment; a type without a row is one plane.
CUTS: Mapping[str, Sequence[tuple[int, int]]] = {
    "q4_0": ((2, 18), (0, 2)),
    "q4_1": ((4, 20), (0, 4)),
    "q5_0": ((6, 22), (2, 6), (0, 2)),
    "q5_1": ((8, 24), (0, 8)),
    "q8_0": ((2, 34), (0, 2)),
    "q2_k": ((0, 80), (80, 84)),
    "q3_k": ((0, 96), (96, 108), (108, 110)),
    "iq1_s": ((2, 50), (0, 2)),
    "iq1_m": ((0, 48), (48, 56)),
    "iq2_xxs": ((2, 66), (0, 2)),
    "iq2_xs": ((2, 66), (66, 74), (0, 2)),
    "iq2_s": ((2, 82), (0, 2)),
    "iq3_xxs": ((2, 98), (0, 2)),
    "iq3_s": ((2, 110), (0, 2)),
    "iq4_nl": ((2, 18), (0, 2)),
    "iq4_xs": ((8, 136), (0, 8)),
    "tq1_0": ((0, 48), (48, 52), (52, 54)),
    "tq2_0": ((0, 64), (64, 66)),
    "mxfp4": ((1, 17), (0, 1)),
    "nvfp4": ((4, 36), (0, 4)),
    "q1_0": ((2, 18), (0, 2)),
    "q2_0": ((2, 18), (0, 2)),
    "affine2": ((4, 12), (0, 4)),
    "affine3": ((4, 16), (0, 4)),
    "affine6": ((4, 28), (0, 4)),
    "affine8": ((4, 36), (0, 4)),
    "mxfp8": ((1, 33), (0, 1)),
}
# Bytes per block of planes in another order (repack_TYPE.h): a product has half the instructions.
REPACKED: Mapping[str, Sequence[int]] = {"q4_k": (128, 16, 4), "q5_k": (128, 48, 4), "q6_k": (128, 80, 2)}
# Codebooks of grid_tables.py.
BOOKS: Mapping[str, str] = {"iq1_s": "iq1", "iq1_m": "iq1"} | {
    name: name for name in ("iq2_xxs", "iq2_xs", "iq2_s", "iq3_xxs", "iq3_s")
}
EXACT_TYPES = frozenset(
    {"f32", "f16", "bf16", "f64", "i8", "i16", "i32", "i64", "mxfp8"}
)  # multiply unrounded x
HALF_TYPES = frozenset({"f16", "bf16"})
WEIGHT_TYPES = EXACT_TYPES | CUTS.keys() | REPACKED.keys()
# Of rounded activations: columns of a block, and bytes of its factors (rounding.h).
BLOCK, FACTOR_BYTES = 32, 16
