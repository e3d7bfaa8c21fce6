"""Pixels as a tower reads them: the resized image's channels, scaled and normalised, in patches."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from importlib import import_module
from typing import Any, TypeAlias

Image: TypeAlias = Any  # PIL.Image.Image; Pillow is an extra
Place = tuple[int, int]  # row and column of a patch in the image
LEVELS = 256


def resized(image: Image, height: int, width: int, resample: str) -> Image:
    """The image at this size, by Pillow's filter `resample`, as the image processors of transformers do."""
    filters: Any = import_module("PIL.Image").Resampling
    return image.resize((width, height), filters[resample.upper()])


def patch_rows(
    image: Image, places: Sequence[Place], size: int, mean: Sequence[float], std: Sequence[float]
) -> bytes:
    """Patches of `size` x `size` pixels at `places` as float32 [patches, channels * size * size].

    A value v of 0 .. 255 becomes (v / 255 - mean) / std of its channel.
    """
    width = image.size[0]
    planes = [
        _normalised(channel.tobytes(), m, s) for channel, m, s in zip(image.split(), mean, std, strict=True)
    ]
    rows = array("f")
    for y, x in places:
        for plane in planes:
            for line in range(y * size, y * size + size):
                at = line * width + x * size
                rows += plane[at : at + size]
    return rows.tobytes()


def _normalised(values: bytes, mean: float, std: float) -> array[float]:
    levels = [(v / 255 - mean) / std for v in range(LEVELS)]
    return array("f", map(levels.__getitem__, values))


def merged_places(height: int, width: int, merge: int) -> list[Place]:
    """The places of `height` x `width` patches, those of one `merge` x `merge` square after each other."""
    squares = ((y, x) for y in range(0, height, merge) for x in range(0, width, merge))
    return [(y + i, x + j) for y, x in squares for i in range(merge) for j in range(merge)]
