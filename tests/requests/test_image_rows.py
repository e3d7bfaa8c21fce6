"""Rows of images with positions by time, height and width (Qwen), and grids of images of any size."""

from __future__ import annotations

import math

import pytest

from camelid.engine.media import Media, media_at, position_of, rows_before_media, with_keys
from camelid.errors import RequestError
from camelid.model.vision.grid import Grid, resized_sides
from camelid.model.vision.spec import Resizing
from camelid.requests.images import image_positions

QWEN = Resizing(factor=28, least=56 * 56, most=28 * 28 * 1280)


def smart_resize(height: int, width: int) -> tuple[int, int]:
    """The rule of Qwen2-VL's image processor, written anew."""
    f, least, most = 28, 56 * 56, 28 * 28 * 1280
    h, w = round(height / f) * f, round(width / f) * f
    if h * w > most:
        beta = math.sqrt(height * width / most)
        return max(f, math.floor(height / beta / f) * f), max(f, math.floor(width / beta / f) * f)
    if h * w < least:
        beta = math.sqrt(least / (height * width))
        return math.ceil(height * beta / f) * f, math.ceil(width * beta / f) * f
    return h, w


@pytest.mark.parametrize(
    "size", [(1, 1), (10, 1900), (28, 28), (480, 640), (1080, 1920), (4000, 3000), (99, 7777)]
)
def test_sides_are_those_of_smart_resize(size: tuple[int, int]) -> None:
    assert resized_sides(QWEN, *size) == smart_resize(*size)


def test_sides_that_differ_too_much_are_refused() -> None:
    with pytest.raises(RequestError, match="a ratio up to 200"):
        resized_sides(QWEN, 10, 2001)


def test_text_goes_on_behind_the_longer_side_of_an_image() -> None:
    grid = Grid(4, 6, 14, 2)  # 2 x 3 rows
    first = image_positions(grid, 5)
    assert first == ((5, 5, 5), (5, 5, 6), (5, 5, 7), (5, 6, 5), (5, 6, 6), (5, 6, 7))
    image = Media(start=5, end=11, digest=b"a", positions=first, shift=3 - 6)
    assert [position_of([image], row) for row in (4, 5, 10, 11, 20)] == [
        (4,), (5, 5, 5), (5, 6, 7), (8,), (17,),
    ]  # fmt: skip


def test_rows_are_found_by_their_image() -> None:
    one, two = Media(start=3, end=7, digest=b"a"), Media(start=9, end=12, digest=b"b")
    media = (one, two)
    assert [media_at(media, row) for row in (2, 3, 6, 7, 11, 12)] == [None, one, one, None, two, None]
    assert [rows_before_media(media, row) for row in (0, 3, 7, 9, 12)] == [3, 0, 2, 0, None]


def test_keys_of_rows_are_those_of_the_content() -> None:
    ids = list(range(40))
    one, same, other = (Media(start=3, end=30, digest=digest) for digest in (b"a", b"a", b"b"))
    keyed = with_keys(ids, [one])
    assert keyed == with_keys(ids, [same]) != with_keys(ids, [other])
    assert (list(keyed[:3]), list(keyed[30:])) == (ids[:3], ids[30:])
    assert len({*keyed[3:30]}) == 27
    assert all(key >= 1 << 31 for key in keyed[3:30])
