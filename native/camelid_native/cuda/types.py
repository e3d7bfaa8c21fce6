"""Weight types: byte ranges of a block that become planes, and codebooks. codec_TYPE.h reads the planes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

CUTS: Mapping[str, Sequence[tuple[int, int]]] = {
    "q8_0": ((2, 34), (0, 2)),
}
BOOKS: Mapping[str, str] = {}
EXACT_TYPES = frozenset({"f32"})
WEIGHT_TYPES = frozenset({"f32", "q8_0"})
