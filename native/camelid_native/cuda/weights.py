"""Weights on the device, in the file's own bits: blocks as planes, so that loads are aligned and wide.

A matrix is four addresses (three planes, and the codebook of its type), its rows and its columns; a plane
holds fields of all blocks, row after row. The device makes planes of blocks as they come from the file.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager

import numpy as np
import numpy.typing as npt

from camelid.backends.base import Sources
from camelid.backends.common.grid_tables import book_bytes
from camelid.backends.common.load_ops import tiles
from camelid.backends.common.part_reader import PartReader
from camelid.backends.common.stored_rows import stored_rows
from camelid.errors import BackendError
from camelid.formats.quants import QUANTS, row_bytes
from camelid.plan.weights import Weight
from camelid_native.cuda.compiler import Module
from camelid_native.cuda.device import Device, aligned
from camelid_native.cuda.holdings import Holdings
from camelid_native.cuda.library import Library
from camelid_native.cuda.staging import Staging
from camelid_native.cuda.types import BOOKS, CUTS, REPACKED

TILE_VALUES = 1 << 22  # of a tile that is read at a time
PIECE_BYTES = 8 << 20  # most of blocks on the device that become planes
MOST_PLANES, EMPTY = 3, ((0, 0),) * 3
REPACKED_GROUPS = 8  # threads of a block of 256 weights
PAD = 16  # bytes after a plane, since kernels load 16 at a time

Placed = tuple[int, ...]  # the fields of Matrix in matrix.h


class Weights:
    """All weights of a backend on its device."""

    def __init__(self, device: Device, staging: Staging, library: Library) -> None:
        self._device, self._staging, self._library = device, staging, library
        self._piece = self._piece_bytes = 0  # memory while weights are loaded
        self._placed: dict[str, Placed] = {}
        self._held: dict[str, Holdings] = {}  # by the name of a weight or codebook
        self._books: dict[str, int] = {}

    @property
    def n_bytes(self) -> int:
        return sum(held.n_bytes for held in self._held.values())

    def has_any(self, weights: Sequence[Weight]) -> bool:
        """True if one of these is loaded already."""
        return any(weight.name in self._placed for weight in weights)

    def load(self, weights: Sequence[Weight], sources: Sources) -> None:
        """Uploads weights; one that is there already is replaced."""
        if not weights:  # CUDA allocates no memory of 0 bytes
            return
        with PartReader(sources) as reader, self._loading(max(map(device_bytes, weights))):
            for weight in weights:
                self._load(weight, reader)
        self._staging.settle()

    @contextmanager
    def _loading(self, most: int) -> Generator[None]:
        """Has memory for a piece of the blocks of weights with up to `most` bytes."""
        held = Holdings(self._device)
        self._piece_bytes = min(PIECE_BYTES, most)
        self._piece = held.allocate(self._piece_bytes)
        try:
            yield
        finally:
            held.close()

    def placed(self, weight: Weight) -> Placed:
        """The addresses and sizes of a weight. Raises BackendError if it is not loaded."""
        if weight.name not in self._placed:
            raise BackendError(f"cuda: {weight.name} is not loaded; call load() first", backend="cuda")
        return self._placed[weight.name]

    def close(self) -> None:
        """Frees all memory."""
        for held in self._held.values():
            held.close()
        self._placed, self._held, self._books = {}, {}, {}

    def _load(self, weight: Weight, reader: PartReader) -> None:
        self._drop(weight.name)
        starts, held = plane_starts(weight), Holdings(self._device)
        with held.building():
            at = held.allocate(starts[-1])
            self._upload(weight, reader, [at + start for start in starts[:-1]])
            book = self._book(weight.type)
        planes = [at + start for start in starts[:-1]]
        planes += [0] * (MOST_PLANES - len(planes))
        self._held[weight.name] = held
        self._placed[weight.name] = (*planes, book, weight.rows, weight.cols)

    def _drop(self, name: str) -> None:
        if name in self._placed:
            del self._placed[name]
            self._held.pop(name).close()

    def _upload(self, weight: Weight, reader: PartReader, planes: Sequence[int]) -> None:
        """Uploads a weight's blocks, a tile of rows at a time."""
        stored, row = stored_rows(weight, reader.read), QUANTS[weight.type]
        most = self._piece_bytes // row.block_bytes
        for first, n in tiles(weight, TILE_VALUES):
            blocks = np.ascontiguousarray(stored(first, n)).reshape(-1, row.block_bytes)
            for start in range(0, len(blocks), most):
                done = first * weight.cols // row.block + start
                places = [at + done * n for at, n in zip(planes, planes_of(weight.type), strict=True)]
                self._put(weight.type, blocks[start : start + most], places)

    def _put(self, kind: str, blocks: npt.NDArray[np.uint8], planes: Sequence[int]) -> None:
        """Puts blocks into planes: uploads them, and has the device order them."""
        if len(planes) == 1:
            return self._staging.upload(planes[0], blocks)
        self._staging.upload(self._piece, blocks)
        module, name, n_threads = _ordering(kind, blocks)
        signature, kernel = self._library.kernel(module, name)
        at = dict(zip(("first", "second", "third"), (*planes, 0), strict=False))
        values = {"blocks": self._piece, "n_bytes": blocks.size, **at, **_cut_values(kind)}
        grid = (-(-n_threads // signature.threads), 1, 1)
        self._device.launch(kernel, grid, signature.threads, signature.packed(values))

    def _book(self, kind: str) -> int:
        """The address of a type's codebook, uploaded once; 0 for a type without one."""
        name = BOOKS.get(kind, "")
        if name and name not in self._books:
            data, held = np.frombuffer(book_bytes(name), np.uint8), Holdings(self._device)
            self._books[name] = held.allocate(len(data) + PAD)
            self._held[f"book/{name}"] = held
            self._staging.upload(self._books[name], data)
        return self._books.get(name, 0)


def planes_of(kind: str) -> Sequence[int]:
    """Bytes of a block in each of its planes; one plane for a type without a row."""
    cuts = CUTS.get(kind, ((0, QUANTS[kind].block_bytes),))
    return REPACKED.get(kind) or [high - low for low, high in cuts]


def _ordering(kind: str, blocks: npt.NDArray[np.uint8]) -> tuple[Module, str, int]:
    """The kernel that puts blocks into planes, and its threads."""
    if kind in REPACKED:
        return Module("repack", (f"repack_{kind}",)), "repack", REPACKED_GROUPS * len(blocks)
    return Module("planes"), "cut", blocks.size


def _cut_values(kind: str) -> dict[str, int]:
    """The sizes of a block and of its cuts, for the kernel `cut`; absent cuts are empty."""
    found = {"block_bytes": QUANTS[kind].block_bytes}
    for name, (low, high) in zip(("first", "second", "third"), (*CUTS.get(kind, ()), *EMPTY), strict=False):
        found |= {f"{name}_at": low, f"{name}_end": high}
    return found


def plane_starts(weight: Weight) -> list[int]:
    """Offsets of a weight's planes, and the size of its memory."""
    n_blocks = weight.rows * row_bytes(weight.type, weight.cols) // QUANTS[weight.type].block_bytes
    starts = [0]
    for n_bytes in planes_of(weight.type):
        starts.append(starts[-1] + aligned(n_blocks * n_bytes + PAD))
    return starts


def device_bytes(weight: Weight) -> int:
    """Bytes of a weight on the device."""
    return plane_starts(weight)[-1]


def books_bytes(kinds: Iterable[str]) -> int:
    """Bytes of the codebooks of these types on the device."""
    names = {BOOKS[kind] for kind in kinds if kind in BOOKS}
    return sum(len(book_bytes(name)) + PAD for name in names)
