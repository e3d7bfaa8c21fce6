"""Bytes of weights from local files, by seek and read: with mmap, a truncated file would raise SIGBUS."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import BinaryIO, Self

import numpy as np
import numpy.typing as npt

from camelid.backends.base import Sources
from camelid.errors import ModelFormatError
from camelid.plan.weights import INLINE, Part

PIECE_BYTES = 4 << 20


class PartReader:
    """A reader that opens each source once. As a context manager it closes the opened files."""

    def __init__(self, sources: Sources) -> None:
        self._sources = sources
        self._files: dict[str, BinaryIO] = {}
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def read(self, part: Part, offset: int, n_bytes: int) -> npt.NDArray[np.uint8]:
        """Reads `n_bytes` of a part from `offset` within it.

        Raises ModelFormatError if the file ends earlier.
        """
        if part.source == INLINE:
            return np.frombuffer(base64.b64decode(part.data), np.uint8)[offset : offset + n_bytes]
        file = self._file(part.source)
        file.seek(part.offset + offset)
        data = file.read(n_bytes)
        if len(data) < n_bytes:
            raise ModelFormatError(
                f"{file.name}: ends at byte {part.offset + offset + len(data)}, {n_bytes - len(data)} bytes "
                "early; it was truncated while it was read",
                path=file.name,
            )
        return np.frombuffer(data, np.uint8)

    def pieces(self, part: Part) -> Iterator[bytes]:
        """Yields all bytes of a part, in pieces of `PIECE_BYTES`."""
        for offset in range(0, part.n_bytes, PIECE_BYTES):
            yield self.read(part, offset, min(PIECE_BYTES, part.n_bytes - offset)).tobytes()

    def _file(self, source: str) -> BinaryIO:
        if source not in self._files:
            path = Path(self._sources[source])
            try:
                file = self._stack.enter_context(path.open("rb"))
            except OSError as error:
                raise ModelFormatError(f"{path}: cannot be read: {error.strerror}", path=str(path)) from error
            self._files[source] = file
        return self._files[source]
