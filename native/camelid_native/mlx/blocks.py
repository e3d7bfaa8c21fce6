"""Weights on a GPU: rows in the file's own blocks, from mapped pages where the file has them as they are."""

from __future__ import annotations

import mmap
import os
from pathlib import Path

import numpy as np
import numpy.typing as npt

from camelid.backends.base import Sources
from camelid.backends.common.load_ops import tiles
from camelid.backends.common.part_reader import PartReader
from camelid.backends.common.stored_rows import stored_rows
from camelid.errors import ModelFormatError
from camelid.plan.weights import INLINE, Part, Weight
from camelid_native.mlx.arrays import Array, mx

TILE_VALUES = 1 << 22  # values of a weight that is put together at once


def blocks_of(weight: Weight, sources: Sources) -> Array:  # u8 [bytes]
    """The rows of a weight in its own type, load ops applied.

    A weight of one byte range is mapped: on Metal the array shares the file's pages, elsewhere MLX copies
    them. Raises ModelFormatError for a truncated file.
    """
    part, *more = weight.parts
    if not more and not weight.load_ops and part.source != INLINE:
        return _mapped(part, Path(sources[part.source]))
    with PartReader(sources) as reader:
        return mx.array(_joined(weight, reader))


def _mapped(part: Part, path: Path) -> Array:
    """The bytes of a part. Pages begin at multiples of a granularity, so the array is a view."""
    with path.open("rb") as file:
        if os.fstat(file.fileno()).st_size < part.offset + part.n_bytes:
            raise ModelFormatError(
                f"{path}: it ends before byte {part.offset + part.n_bytes}", path=str(path)
            )
        start = part.offset // mmap.ALLOCATIONGRANULARITY * mmap.ALLOCATIONGRANULARITY
        before = part.offset - start
        pages = mmap.mmap(file.fileno(), before + part.n_bytes, access=mmap.ACCESS_READ, offset=start)
    return mx.asarray(np.frombuffer(pages, np.uint8))[before:]


def _joined(weight: Weight, reader: PartReader) -> npt.NDArray[np.uint8]:
    found, stored, at = np.empty(weight.n_bytes, np.uint8), stored_rows(weight, reader.read), 0
    for start, n in tiles(weight, TILE_VALUES):
        rows = stored(start, n).reshape(-1)
        found[at : at + rows.size] = rows
        at += rows.size
    return found
