"""Weights on a GPU: rows in the file's own blocks, from mapped pages where the file has them as they are.

A file has one mapping, and so one open descriptor, for as long as an array shares its pages. It must not be
truncated while a model runs: a read beyond its new end ends the process by SIGBUS, which no check here can
prevent (`part_reader.py` does not map for that reason). A file that has changed is mapped anew by the next
load. Metal shares whole pages alone, by MLX's array of them; whether it does is counted, and on a Mac to be
confirmed by these counts.
"""

from __future__ import annotations

import mmap
import os
from math import gcd
from pathlib import Path
from weakref import WeakValueDictionary

import numpy as np
import numpy.typing as npt
from numpy.lib.stride_tricks import as_strided

from camelid.backends.base import Sources
from camelid.backends.common.load_ops import tiles
from camelid.backends.common.part_reader import PartReader
from camelid.backends.common.stored_rows import stored_rows
from camelid.errors import ModelFormatError
from camelid.plan.weights import INLINE, Part, Weight
from camelid_native.mlx.arrays import U8, Array, mx

TILE_VALUES = 1 << 22  # values of a weight that are decoded or put together at once
ALIGN = 16  # bytes; kernels read ushort, half, float and vectors of them
WIDEST = 8  # bytes of MLX's widest integers
MOST_ITEMS = 2**31 - 1  # MLX's dimensions are int32

U8Rows = npt.NDArray[np.uint8]


def is_mapped(weight: Weight) -> bool:
    """True for a weight of one byte range, whose pages are its rows."""
    return len(weight.parts) == 1 and not weight.load_ops and weight.parts[0].source != INLINE


class Blocks:
    """Reads weights in blocks. Counts bytes: shared with a file's pages, copied instead, or put together."""

    def __init__(self) -> None:
        self.counters = {f"{kind}_block_bytes": 0 for kind in ("shared", "copied", "joined")}
        self._mapped = WeakValueDictionary[tuple[int, ...], mmap.mmap]()

    def read(self, weight: Weight, sources: Sources) -> Array:  # u8 [rows, bytes of a row]
        """The rows of a weight in its own type, load ops applied.

        On Metal the array of a mapped weight shares the file's pages. It is a copy on other devices, of a
        part that begins at no multiple of `ALIGN`, and of one with too many items for MLX's dimensions.
        Raises ModelFormatError for a truncated file.
        """
        if is_mapped(weight):
            kind, array = self._of_part(weight, Path(sources[weight.parts[0].source]))
        else:
            with PartReader(sources) as reader:
                kind, array = "joined", mx.array(_joined(weight, reader).reshape(weight.rows, -1))
        self.counters[f"{kind}_block_bytes"] += weight.n_bytes
        return array

    def _of_part(self, weight: Weight, path: Path) -> tuple[str, Array]:
        """The rows of a file's part, and whether they are "shared" or "copied"."""
        part = weight.parts[0]
        window, before = _window(self._pages(path, part.offset + part.n_bytes), part)
        found = window[before : before + part.n_bytes].reshape(weight.rows, -1)
        shared = None if before % ALIGN else _shared(window, before, found)
        return ("copied", mx.array(found)) if shared is None else ("shared", shared)

    def _pages(self, path: Path, end: int) -> mmap.mmap:
        """The mapping of a whole file that reaches `end`."""
        try:
            with path.open("rb") as file:
                facts = os.fstat(file.fileno())
                _check_reaches(path, facts.st_size, end)
                key = (facts.st_dev, facts.st_ino, facts.st_size, facts.st_mtime_ns)
                pages = self._mapped.get(key) or mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except OSError as error:
            raise ModelFormatError(f"{path}: cannot be read: {error.strerror}", path=str(path)) from error
        self._mapped[key] = pages
        return pages


def _check_reaches(path: Path, size: int, end: int) -> None:
    if size < end:
        raise ModelFormatError(
            f"{path}: ends at byte {size}, {end - size} bytes early; the file was truncated after its header "
            "was read: fetch it again, and load the model again",
            path=str(path),
        )


def _window(pages: mmap.mmap, part: Part) -> tuple[U8Rows, int]:
    """The whole pages that have a part, and where in them it begins.

    A file's last page is whole in memory, though the mapping's length ends within it.
    """
    before = part.offset % mmap.PAGESIZE
    n_bytes = -(-(before + part.n_bytes) // mmap.PAGESIZE) * mmap.PAGESIZE
    raw = np.frombuffer(pages, np.uint8)[part.offset - before :]
    return as_strided(raw, (n_bytes,), (1,), writeable=False), before


def _shared(window: U8Rows, before: int, found: U8Rows) -> Array | None:
    """An array of a window's pages from `before`, in the shape of `found`; None if MLX would copy them.

    Wide items keep a window of more than 2 GiB within MLX's dimensions.
    """
    rows, each = found.shape
    unit = gcd(WIDEST, before, each)
    items, first = window.view(f"u{unit}"), before // unit
    if items.size > MOST_ITEMS:
        return None
    try:
        array = mx.asarray(items, copy=False)
    except ValueError:
        return None
    return array[first : first + found.size // unit].reshape(rows, each // unit).view(U8)


def _joined(weight: Weight, reader: PartReader) -> U8Rows:
    found, stored, at = np.empty(weight.n_bytes, np.uint8), stored_rows(weight, reader.read), 0
    for start, n in tiles(weight, TILE_VALUES):
        rows = stored(start, n).reshape(-1)
        found[at : at + rows.size] = rows
        at += rows.size
    return found
