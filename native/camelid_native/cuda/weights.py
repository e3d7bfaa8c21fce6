"""Weights on the device, in the file's own bits: blocks cut into planes, so that loads are aligned.

A matrix is four addresses (three planes, and the codebook of its type), its rows and its columns; a plane
holds one field of all blocks, row after row. A vector is its bytes.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from camelid.backends.base import Sources
from camelid.backends.common.grid_tables import book_bytes
from camelid.backends.common.load_ops import tiles
from camelid.backends.common.part_reader import PartReader
from camelid.backends.common.stored_rows import stored_rows
from camelid.formats.quants import QUANTS, row_bytes
from camelid.plan.weights import Weight
from camelid_native.cuda.device import Device
from camelid_native.cuda.staging import Staging
from camelid_native.cuda.types import BOOKS, CUTS

TILE_VALUES = 1 << 22  # of a tile that is read and uploaded at a time
MOST_PLANES = 3
ALIGNMENT = 256
PAD = 16  # bytes after a plane, since kernels load 16 at a time

Placed = tuple[int, ...]  # the fields of Matrix in matrix.h


class Weights:
    """All weights of a backend on its device."""

    def __init__(self, device: Device, staging: Staging) -> None:
        self._device, self._staging = device, staging
        self._placed: dict[str, Placed] = {}
        self._blocks: dict[str, int] = {}  # name -> address of its memory
        self._books: dict[str, int] = {}
        self.n_bytes = 0

    def load(self, weights: Sequence[Weight], sources: Sources) -> None:
        """Uploads weights; one that is there already is replaced."""
        with PartReader(sources) as reader:
            for weight in weights:
                self._load(weight, reader)
        self._staging.settle()

    def close(self) -> None:
        """Frees all memory."""
        for at in (*self._blocks.values(), *self._books.values()):
            self._device.free(at)
        self._placed, self._blocks, self._books, self.n_bytes = {}, {}, {}, 0

    def placed(self, weight: Weight) -> Placed:
        """The addresses and sizes of a loaded weight."""
        return self._placed[weight.name]

    def _load(self, weight: Weight, reader: PartReader) -> None:
        if weight.name in self._blocks:
            self._device.free(self._blocks.pop(weight.name))
            self.n_bytes -= device_bytes(weight)
        starts = plane_starts(weight)
        self._blocks[weight.name] = at = self._device.allocate(starts[-1])
        self.n_bytes += starts[-1]
        stored, cuts = stored_rows(weight, reader.read), cuts_of(weight.type)
        for first, n in tiles(weight, TILE_VALUES):
            rows = np.ascontiguousarray(stored(first, n)).reshape(-1, QUANTS[weight.type].block_bytes)
            start = first * weight.cols // QUANTS[weight.type].block
            for plane, (low, high) in zip(starts, cuts, strict=False):
                self._staging.upload(at + plane + start * (high - low), rows[:, low:high])
        planes = [at + plane for plane in starts[:-1]]
        planes += [0] * (MOST_PLANES - len(planes))
        self._placed[weight.name] = (*planes, self._book(weight.type), weight.rows, weight.cols)

    def _book(self, kind: str) -> int:
        """The address of a type's codebook, uploaded once; 0 for a type without one."""
        name = BOOKS.get(kind, "")
        if name and name not in self._books:
            data = np.frombuffer(book_bytes(name), np.uint8)
            self._books[name] = self._device.allocate(len(data) + PAD)
            self._staging.upload(self._books[name], data)
        return self._books.get(name, 0)


def cuts_of(kind: str) -> Sequence[tuple[int, int]]:
    """The byte ranges of a block's planes; one plane for a type without a row."""
    return CUTS.get(kind, ((0, QUANTS[kind].block_bytes),))


def plane_starts(weight: Weight) -> list[int]:
    """Offsets of a weight's planes, and the size of its memory."""
    n_blocks = weight.rows * row_bytes(weight.type, weight.cols) // QUANTS[weight.type].block_bytes
    starts = [0]
    for low, high in cuts_of(weight.type):
        starts.append(starts[-1] + -(-(n_blocks * (high - low) + PAD) // ALIGNMENT) * ALIGNMENT)
    return starts


def device_bytes(weight: Weight) -> int:
    """Bytes of a weight on the device."""
    return plane_starts(weight)[-1]
