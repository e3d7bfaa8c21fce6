"""Pixels as a tower reads them: the resized image's channels, scaled and normalised, in patches."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

from camelid.images.pixels import Pixels

Place = tuple[int, int]  # row and column of a patch in the image
LEVELS = 256


def patch_rows(
    image: Pixels, places: Sequence[Place], size: int, mean: Sequence[float], std: Sequence[float]
) -> bytes:
    """Patches of `size` x `size` pixels at `places` as float32 [patches, channels * size * size].

    A value v of 0 .. 255 becomes (v / 255 - mean) / std of its channel.
    """
    width = image.size[0]
    planes = [_normalised(channel, m, s) for channel, m, s in zip(image.channels(), mean, std, strict=True)]
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


def windows_of(height: int, width: int, side: int) -> list[list[Place]]:
    """The places of `height` x `width` squares by window of `side` x `side`; one window if `side` is 0."""
    side = side or max(height, width)
    return [
        [(y, x) for y in range(top, min(top + side, height)) for x in range(left, min(left + side, width))]
        for top in range(0, height, side)
        for left in range(0, width, side)
    ]


def patches_of(squares: Sequence[Place], merge: int) -> list[Place]:
    """The places of the patches of squares of `merge` x `merge` patches, square by square."""
    inside = [(i, j) for i in range(merge) for j in range(merge)]
    return [(y * merge + i, x * merge + j) for y, x in squares for i, j in inside]


def table_weights(places: Sequence[Place], height: int, width: int, side: int) -> bytes:
    """Weights of a learned table [side * side] at each place, as float32 [places, side * side].

    Bilinear, with the corners of the image at those of the table.
    """
    rows, cols = ([_taps(i, n, side) for i in range(n)] for n in (height, width))
    weights = array("f", bytes(4 * len(places) * side * side))
    for number, (y, x) in enumerate(places):
        for row, by_row in rows[y]:
            for col, by_col in cols[x]:
                weights[(number * side + row) * side + col] += by_row * by_col
    return weights.tobytes()


def _taps(i: int, n: int, side: int) -> list[tuple[int, float]]:
    """The two entries of an axis of the table around place `i` of `n`, with their weights."""
    at = i * (side - 1) / (n - 1) if n > 1 else 0.0
    first = min(int(at), side - 1)
    return [(first, 1.0 - (at - first)), (min(first + 1, side - 1), at - first)]
