"""Decoded images, of Pillow or, in a page, of the browser."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol


class Pixels(Protocol):
    """An upright image in RGB, 8 bits a value."""

    @property
    def size(self) -> tuple[int, int]:
        """Width and height."""
        ...

    def resized(self, height: int, width: int, resample: str) -> Pixels:
        """The image at another size, with the values of Pillow's filter `resample`."""
        ...

    def channels(self) -> Sequence[bytes]:
        """The values of red, green and blue, each as [height * width]."""
        ...


# Images that the host has decoded before their request, by digest: a page, which has no Pillow, decodes them
# asynchronously (camelid.page.images). Empty elsewhere.
DECODED_AHEAD: dict[bytes, Pixels] = {}
