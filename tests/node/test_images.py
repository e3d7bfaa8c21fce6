"""web/images in Node.js: Pillow's resampling bit by bit, raw pixels as BMP, refusals."""

from __future__ import annotations

import base64
import io
import json
import struct
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.support.node_host import need_node

PIL: Any = pytest.importorskip("PIL", reason="the extra vision is not installed")
Image: Any = pytest.importorskip("PIL.Image", reason="the extra vision is not installed")
SCRIPT = Path(__file__).with_name("images.mjs")
FILTERS = ("bilinear", "bicubic", "lanczos")
# Width and height before and after: smaller, larger, both, one side alone, to and from one pixel.
SIZES = (
    ((40, 30), (17, 11)),
    ((13, 9), (50, 41)),
    ((31, 12), (8, 40)),
    ((16, 16), (16, 7)),
    ((16, 16), (9, 16)),
    ((1, 5), (6, 1)),
    ((7, 7), (1, 1)),
    ((200, 3), (3, 150)),
    ((301, 211), (64, 64)),
)
# Sizes whose columns Pillow 13 resizes first, and their neighbours of which it does not.
TALL = (
    ((50, 70), (32, 33)),
    ((50, 70), (32, 34)),
    ((20, 36), (21, 35)),
    ((36, 36), (94, 34)),
    ((9, 118), (4, 9)),
)


def in_node(*calls: list[Any]) -> list[Any]:
    """The value, or the error's text, of each [function, ...arguments]."""
    command = [need_node(), "--no-warnings", str(SCRIPT)]
    done = subprocess.run(command, input=json.dumps(calls), capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return [answer.get("value", answer.get("error")) for answer in json.loads(done.stdout)]


def noise(width: int, height: int, channels: int = 3, seed: int = 5) -> NDArray[np.uint8]:
    """Random values, half of them extreme, which overshoot."""
    random = np.random.default_rng((seed, width, height))
    values = random.integers(0, 256, (height, width, channels))
    extreme = random.integers(0, 2, values.shape) * 255
    return np.where(random.integers(0, 2, values.shape) == 0, values, extreme).astype(np.uint8)


def encoded(data: bytes) -> str:
    return base64.b64encode(data).decode()


def decoded(text: str) -> NDArray[np.uint8]:
    return np.frombuffer(base64.b64decode(text), np.uint8)


@pytest.mark.parametrize("name", FILTERS)
def test_resized_images_are_pillows(name: str) -> None:
    sizes = (*SIZES, *(TALL if int(PIL.__version__.partition(".")[0]) >= 13 else ()))
    images = [noise(*size) for size, _ in sizes]
    calls = [
        ["resized", encoded(image.tobytes()), size, wanted, name]
        for image, (size, wanted) in zip(images, sizes, strict=True)
    ]
    for got, image, (size, wanted) in zip(in_node(*calls), images, sizes, strict=True):
        want = np.asarray(Image.fromarray(image).resize(wanted, Image.Resampling[name.upper()]))
        assert np.array_equal(decoded(got).reshape(want.shape), want), (size, wanted)


def test_an_unknown_filter_is_refused() -> None:
    assert in_node(["resized", "AAAA", [1, 1], [2, 2], "box"]) == ["Error: the filter 'box' is unknown"]


@pytest.mark.parametrize("channels", [3, 4])
@pytest.mark.parametrize("width", [1, 2, 3, 4, 7])
def test_raw_pixels_are_a_bmp_that_pillow_reads(width: int, channels: int) -> None:
    pixels = noise(width, 5, channels)
    (file,) = in_node(["toBmp", {"width": width, "height": 5, "data": encoded(pixels.tobytes())}])
    read = Image.open(io.BytesIO(base64.b64decode(file)))
    assert (read.format, read.mode) == ("BMP", "RGB")
    assert np.array_equal(np.asarray(read), pixels[:, :, :3])
    back, planes = in_node(["fromBmp", file], ["planes", file])
    assert (back["width"], back["height"]) == (width, 5)
    assert np.array_equal(decoded(back["rgb"]).reshape(5, width, 3), pixels[:, :, :3])
    assert np.array_equal(decoded(planes).reshape(3, 5, width), pixels[:, :, :3].transpose(2, 0, 1))


def test_other_files_need_a_decoder() -> None:
    file = io.BytesIO()
    Image.fromarray(noise(4, 4)).convert("P").save(file, "BMP")
    whole = encoded(file.getvalue())
    (raw,) = in_node(["toBmp", {"width": 2, "height": 2, "data": encoded(bytes(12))}])
    cut = encoded(base64.b64decode(raw)[:-1])
    for other in (whole, cut, encoded(b"x")):
        back, opened = in_node(["fromBmp", other], ["planes", other])
        assert back == {"rgb": ""} and opened == "Error: this host has no decoder of image files"


@pytest.mark.parametrize(("width", "height", "n_bytes"), [(0x55555556, 1, 4), (-2, -2, 8), (0, 0, 0)])
def test_a_false_size_is_not_allocated(width: int, height: int, n_bytes: int) -> None:
    """The first size is 4 GB of pixels, whose rows have 4 bytes in arithmetic of 32 bits."""
    (raw,) = in_node(["toBmp", {"width": 1, "height": 1, "data": encoded(bytes(3))}])
    file = bytearray(base64.b64decode(raw)[:54]) + bytes(n_bytes)
    struct.pack_into("<I", file, 2, len(file))
    struct.pack_into("<ii", file, 18, width, height)
    struct.pack_into("<I", file, 34, n_bytes)
    assert in_node(["fromBmp", encoded(bytes(file))]) == [{"rgb": ""}]


def test_images_become_data_uris() -> None:
    given = {"width": 2, "height": 1, "data": encoded(bytes(range(6)))}
    text, bmp = in_node(["asJson", given], ["toBmp", given])
    assert json.loads(text) == {"image": f"data:image/bmp;base64,{bmp}"}


def test_images_that_cannot_be_sent_are_refused() -> None:
    short = {"width": 2, "height": 2, "data": encoded(bytes(6))}
    none = {"width": 0, "height": 2, "data": ""}
    errors = in_node(["asJson", short], ["asJson", none], ["asJson", {"blob": encoded(b"x")}])
    assert errors[0] == (
        "RequestError: an image has Uint8Array of 6 for 2 x 2 pixels, expected 3 or 4 bytes a pixel, in RGB "
        "or RGBA"
    )
    assert "for 0 x 2 pixels" in errors[1]
    assert errors[2].startswith("RequestError: Node.js has no decoder of image files: give the pixels")
