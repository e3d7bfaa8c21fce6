"""Decodes images with Pillow (`camelid[vision]`), within limits of bytes and pixels.

A page has no Pillow: its images are decoded ahead of their request (`pixels.DECODED_AHEAD`).
"""

from __future__ import annotations

import base64
import binascii
import io
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from importlib import import_module
from os import PathLike
from pathlib import Path
from typing import Any, NoReturn, TypeAlias, cast

from camelid.errors import RequestError, shown
from camelid.images.pixels import DECODED_AHEAD, Pixels

Image: TypeAlias = Any  # PIL.Image.Image; Pillow is an extra
MAX_BYTES = 64 << 20  # of an encoded image
MAX_PIXELS = 1 << 26  # 8,192 x 8,192; above that a decoded image takes more than 200 MB
FORMATS = ("BMP", "GIF", "JPEG", "PNG", "TIFF", "WEBP")  # of clients; Pillow has more readers
ORIENTATION, SIDEWAYS = 0x0112, (5, 6, 7, 8)  # EXIF's tag, and its values that exchange the sides
INSTALL = 'pip install "camelid[vision]"'
DATA = "data:"


@dataclass(frozen=True)
class ImageFile:
    """An encoded image that was read but not decoded. Equal images have one `digest`."""

    data: bytes

    @cached_property
    def digest(self) -> bytes:
        return sha256(self.data).digest()


@dataclass(frozen=True, slots=True)
class PillowPixels:
    """An image of Pillow in RGB."""

    image: Image

    @property
    def size(self) -> tuple[int, int]:
        return self.image.size

    def resized(self, height: int, width: int, resample: str) -> PillowPixels:
        filters: Any = import_module("PIL.Image").Resampling
        return PillowPixels(self.image.resize((width, height), filters[resample.upper()]))

    def channels(self) -> Sequence[bytes]:
        return [channel.tobytes() for channel in self.image.split()]


def image_file(value: object, place: str) -> ImageFile:
    """An image from a data URI, a path, bytes or a PIL image.

    Raises RequestError for anything else, for an http address, and above `MAX_BYTES`.
    """
    if isinstance(value, ImageFile):
        return value
    if isinstance(value, str) and value.startswith(DATA):
        return from_data_uri(value, place)
    if isinstance(value, str) and value.partition(":")[0].lower() in ("http", "https", "ftp"):
        refuse(place, f"the address {value!r:.80}", "a data URI or a file: addresses are not fetched")
    if isinstance(value, str | PathLike):
        return _from_path(Path(cast("str", value)), place)
    if isinstance(value, bytes | bytearray | memoryview):
        return checked_bytes(bytes(cast("bytes", value)), place)
    if hasattr(value, "tobytes") and hasattr(value, "convert"):
        return _from_pil(value)
    refuse(place, shown(value), "a path, bytes, a data URI or a PIL image")


def from_data_uri(uri: str, place: str) -> ImageFile:
    """An image of a data URI (RFC 2397) in base64. Raises RequestError, for other addresses too."""
    if not uri.startswith(DATA):
        refuse(place, f"the address {uri!r:.80}", "a data URI: addresses are not fetched")
    head, comma, body = uri.partition(",")
    if not comma or not head.endswith(";base64"):
        refuse(place, f"{uri!r:.60}", "data:image/png;base64,... (base64 alone is supported)")
    return from_base64(body, place)


def from_base64(text: str, place: str) -> ImageFile:
    """An image in base64. Raises RequestError."""
    if len(text) > MAX_BYTES * 4 // 3 + 4:
        refuse(place, f"{len(text):,} characters of base64", f"an image of at most {MAX_BYTES:,} bytes")
    try:
        return checked_bytes(base64.b64decode(text, validate=True), place)
    except (binascii.Error, ValueError) as error:
        refuse(place, f"invalid base64 ({error})", "the base64 text of an image")


def checked_bytes(data: bytes, place: str) -> ImageFile:
    """An image's bytes. Raises RequestError if there are none, or more than `MAX_BYTES`."""
    if not 0 < len(data) <= MAX_BYTES:
        refuse(place, f"{len(data):,} bytes", f"an image of 1 to {MAX_BYTES:,} bytes")
    return ImageFile(data)


def _from_path(path: Path, place: str) -> ImageFile:
    try:
        if path.stat().st_size > MAX_BYTES or not path.is_file():
            refuse(place, f"{str(path)!r:.200}", f"an image file of at most {MAX_BYTES:,} bytes")
        return checked_bytes(path.read_bytes(), place)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        refuse(place, f"{str(path)!r:.200}, which cannot be read ({reason})", "the path of an image")


def _from_pil(image: Any) -> ImageFile:
    """A PIL image as PNG, which keeps its values."""
    data = io.BytesIO()
    image.convert("RGB").save(data, "PNG")
    return ImageFile(data.getvalue())


def decoded(file: ImageFile, place: str) -> Pixels:
    """The image in RGB, turned by its EXIF orientation, as transformers loads images.

    Raises RequestError for damaged data, an unknown format, too many pixels, and if Pillow is absent.
    """
    if file.digest in DECODED_AHEAD:
        return DECODED_AHEAD[file.digest]
    image = _opened(file, place)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return PillowPixels(upright(image).convert("RGB"))
    except Exception as error:  # as in `_opened`
        refuse_unreadable(file, place, type(error).__name__)


def refuse_unreadable(file: ImageFile, place: str, reason: str, formats: Sequence[str] = FORMATS) -> NoReturn:
    """Raises the RequestError of an image that cannot be decoded."""
    got = f"{len(file.data):,} bytes that are no readable image ({reason})"
    refuse(place, got, f"an image as {', '.join(formats)}")


def size_of(file: ImageFile, place: str) -> tuple[int, int]:
    """Width and height of the upright image, without its pixels. Raises RequestError as `decoded`."""
    if file.digest in DECODED_AHEAD:
        return DECODED_AHEAD[file.digest].size
    image = _opened(file, place)
    width, height = image.size
    return (height, width) if image.getexif().get(ORIENTATION) in SIDEWAYS else (width, height)


def _opened(file: ImageFile, place: str) -> Image:
    """The image whose pixels are not read yet."""
    pil = pillow(place)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of damaged metadata and large images: both have limits here
            image = pil.open(io.BytesIO(file.data), formats=FORMATS)
            image.getexif()
    except Exception as error:  # readers of damaged files raise errors of many kinds
        refuse_unreadable(file, place, type(error).__name__)
    width, height = image.size
    check_size(width, height, place)
    return image


def check_size(width: int, height: int, place: str) -> None:
    """Raises RequestError above `MAX_PIXELS`."""
    if not 0 < width * height <= MAX_PIXELS:
        refuse(
            place, f"{width:,} x {height:,} pixels", f"at most {MAX_PIXELS:,} pixels; make the image smaller"
        )


def upright(image: Image) -> Image:
    """The image turned by its EXIF orientation."""
    ops: Any = import_module("PIL.ImageOps")
    return ops.exif_transpose(image)


def pillow(place: str = "image") -> Any:
    """Pillow's module `PIL.Image`. Raises RequestError with the line that installs it."""
    try:
        return import_module("PIL.Image")
    except ImportError:
        raise RequestError(
            f"{place}: images need Pillow, which is not installed; {INSTALL}", field="image"
        ) from None


def refuse(place: str, got: str, want: str) -> NoReturn:
    raise RequestError(f"{place}: found {got}, expected {want}", field=place.partition("[")[0])
