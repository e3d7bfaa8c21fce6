"""Images of a page, which has no Pillow: JavaScript decodes and resizes them (web/images/decode.js)."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from importlib import import_module
from typing import Any, cast

from camelid.images.decode import ImageFile, check_size, refuse_unreadable
from camelid.images.pixels import DECODED_AHEAD, Pixels
from camelid.requests.images import images_of
from camelid.requests.messages import checked_messages

KEPT_BYTES = 128 << 20  # of decoded images that no request uses
FORMATS = ("BMP", "GIF", "JPEG", "PNG", "WEBP")  # of every browser
Decode = Callable[[ImageFile, str], Awaitable[Pixels]]


@dataclass(frozen=True, slots=True)
class PagePixels:
    """A Raster of web/images/decode.js. Its bytes stay in JavaScript until a tower reads them."""

    raster: Any

    @property
    def size(self) -> tuple[int, int]:
        return self.raster.width, self.raster.height

    def resized(self, height: int, width: int, resample: str) -> PagePixels:
        return PagePixels(self.raster.resized(width, height, resample))

    def channels(self) -> Sequence[bytes]:
        planes: bytes = self.raster.planes().to_bytes()
        n = len(planes) // 3
        return [planes[i * n : (i + 1) * n] for i in range(3)]


async def decode(file: ImageFile, place: str) -> Pixels:
    """The image in RGB, decoded by the browser. Raises RequestError as `camelid.images.decode.decoded`."""
    js: Any = import_module("js")
    ffi: Any = import_module("pyodide.ffi")
    try:
        opened = await js.camelid.openImage(ffi.to_js(file.data))
        try:
            check_size(opened.width, opened.height, place)
            return PagePixels(opened.read())
        finally:
            opened.close()
    except ffi.JsException as error:
        refuse_unreadable(file, place, error.message, FORMATS)


class PageImages:
    """Decodes the images of messages ahead of their request, and keeps them as long as there is room."""

    def __init__(self, decode: Decode = decode) -> None:
        self._decode = decode
        self._uses: Counter[bytes] = Counter()

    @asynccontextmanager
    async def ahead(self, prompt: object) -> AsyncGenerator[None, None]:
        """A context in which the images of a prompt are decoded. Raises RequestError for a damaged one."""
        files = images_of(checked_messages(cast("list[object]", prompt))) if _has_parts(prompt) else []
        used = Counter(file.digest for file in files)
        self._uses += used
        try:
            for number, file in enumerate(files):
                await self._keep(file, f"image {number + 1}")
            yield
        finally:
            self._uses -= used
            self._make_room()

    async def _keep(self, file: ImageFile, place: str) -> None:
        """Decodes an image unless it is decoded, and moves it behind all others."""
        found = DECODED_AHEAD.pop(file.digest, None)
        DECODED_AHEAD[file.digest] = found or await self._decode(file, place)

    def _make_room(self) -> None:
        """Drops the images that no request uses, the longest unused first, down to KEPT_BYTES."""
        unused = [digest for digest in DECODED_AHEAD if not self._uses[digest]]
        n_bytes = sum(map(_n_bytes, map(DECODED_AHEAD.__getitem__, unused)))
        for digest in unused:
            if n_bytes <= KEPT_BYTES:
                break
            n_bytes -= _n_bytes(DECODED_AHEAD.pop(digest))


def _n_bytes(pixels: Pixels) -> int:
    width, height = pixels.size
    return width * height * 3


def _has_parts(prompt: object) -> bool:
    """True for messages of which one has content parts: others have no images."""
    messages = cast("list[object]", prompt) if isinstance(prompt, list) else []
    fields = (cast("dict[str, object]", each) for each in messages if isinstance(each, dict))
    return any(isinstance(each.get("content"), list) for each in fields)
