"""Weights in the forms that kernels read: float32, rows as in the file, or panels packed from the rows.

Matrices are packed in pieces, several at a time on all threads. Their file is read, not mapped: no page of
the file stays in memory, and a file truncated meanwhile is a ModelFormatError, not a SIGBUS. Embedding tables
stay mapped, as few of their rows are ever looked up; a step checks that nobody wrote to their file.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from camelid.backends.base import Sources
from camelid.backends.common.load_ops import load_rows, tiles
from camelid.backends.common.mapped_file import MappedFile
from camelid.backends.common.part_reader import PartReader
from camelid.backends.common.stored_rows import Stored, stored_rows, takes_all
from camelid.errors import ModelFormatError
from camelid.formats.quants import row_bytes
from camelid.plan.weights import INLINE, Part, Weight
from camelid_native.cpu.api import Library
from camelid_native.cpu.memory import Arena
from camelid_native.cpu.records import (
    FORM_F32,
    FORM_ROWS,
    PANEL_ROWS,
    TURNS,
    WeightRecord,
    panel_type,
    stacked,
    weight_record,
)

U8: TypeAlias = npt.NDArray[np.uint8]
Job: TypeAlias = Callable[[], None]
Begin: TypeAlias = Callable[[Job], Future[None]]  # starts a job on a pool thread
Record: TypeAlias = Callable[[Weight, int], WeightRecord]  # (weight, form) -> record
PIECE_BYTES = 2 << 20  # source bytes that one job packs
TILE_VALUES = 1 << 20


class WeightForms:
    """All weights of a backend, each in the forms that compiled ops use."""

    def __init__(self, library: Library, n_threads: int) -> None:
        self._library, self._n_threads = library, n_threads
        self._sources: dict[str, str] = {}
        self._records: dict[tuple[str, int], WeightRecord] = {}
        self._memory = Arena()
        self._mapped: dict[str, MappedFile] = {}  # by path, since a later load may give a source another path

    def add(self, weights: Sequence[Weight], sources: Sources) -> None:
        """Declares weights. A weight is read when a form is first requested."""
        self._sources.update(sources)
        stale = {weight.name for weight in weights}
        self._records = {key: record for key, record in self._records.items() if key[0] not in stale}

    def check(self) -> None:
        """Raises DeviceLostError if a mapped file was written since it was mapped."""
        for mapped in self._mapped.values():
            mapped.check()

    @property
    def n_bytes(self) -> int:
        """Bytes of allocated memory, without mapped files."""
        return self._memory.n_bytes

    def record(self, weight: Weight, form: int) -> WeightRecord:
        """Record of a weight in a form; packs the weight at the first request.

        Raises ModelFormatError if the file cannot be read.
        """
        with self.packing() as record:
            return record(weight, form)

    @contextmanager
    def packing(self) -> Generator[Record]:
        """Context that yields a function (weight, form) -> record.

        The function returns at once while threads pack the weight; all weights are ready when the context
        exits. If the caller or a job fails (ModelFormatError), no record of the context is kept.
        """
        before, pool = dict(self._records), ThreadPoolExecutor(self._n_threads)
        begun: list[Future[None]] = []

        def begin(job: Job) -> Future[None]:
            begun.append(pool.submit(job))
            return begun[-1]

        try:
            yield partial(self._record, begin)
            for job in begun:
                job.result()
        except BaseException:
            self._records = before
            raise
        finally:
            pool.shutdown(cancel_futures=True)  # waits, so that no thread writes to freed memory

    def _record(self, begin: Begin, weight: Weight, form: int) -> WeightRecord:
        key = (weight.name, form)
        if key not in self._records:
            self._records[key] = FORMS[form](self, weight, begin)
        return self._records[key]

    def floats(self, weight: Weight, begin: Begin) -> WeightRecord:
        """Record of all values as float32, row by row."""
        at = self._memory.block(4 * weight.rows * weight.cols)
        begin(partial(self._put_floats, weight, at))
        return weight_record(weight, FORM_F32, at)

    def _put_floats(self, weight: Weight, at: int) -> None:
        for start, n in tiles(weight, TILE_VALUES):
            values = load_rows(weight, self._read, start, n).astype(np.float32)
            ctypes.memmove(at + 4 * start * weight.cols, values.tobytes(), values.nbytes)

    def rows(self, weight: Weight, begin: Begin) -> WeightRecord:
        """Record of rows in blocks of the weight's type; the mapped file if no load op changes the rows."""
        if is_mapped(weight):
            return weight_record(weight, FORM_ROWS, self._mapped_at(weight.parts[0]))
        at = self._memory.block(weight.n_bytes)
        begin(partial(self._put_rows, weight, at))
        return weight_record(weight, FORM_ROWS, at)

    def _put_rows(self, weight: Weight, at: int) -> None:
        each, stored = row_bytes(weight.type, weight.cols), stored_rows(weight, self._read)
        for start, n in tiles(weight, TILE_VALUES):
            ctypes.memmove(at + start * each, stored(start, n).tobytes(), n * each)

    def panels(self, weight: Weight, begin: Begin, *, form: int) -> WeightRecord:
        """Record of panels of 16 rows, matrix by matrix; FORM_GATED alternates panels of the two halves."""
        weight = _in_panel_type(weight)
        stack, rows, cols = stacked(weight)
        turns, height, stored = TURNS[form], _piece_rows(weight), stored_rows(weight, self._read)
        rows //= turns
        one, part = (self._library.panel_bytes(weight.type, n, cols) for n in (1, rows))
        at = self._memory.block(stack * turns * part)
        firsts = [at + i * turns * part + turn * one for i in range(stack) for turn in range(turns)]
        pieces = [
            begin(
                partial(
                    self._pack, weight, stored, i * rows, range(start, min(start + height, rows)), to, turns
                )
            )
            for i, to in enumerate(firsts)
            for start in range(0, rows, height)
        ]
        if takes_all(weight):
            wait(pieces)  # each such weight holds its whole decoded matrix: one at a time
        return weight_record(weight, form, at, turns * part)

    def _pack(self, weight: Weight, stored: Stored, first: int, rows: range, at: int, turns: int) -> None:
        """Packs `rows` of the part that begins at row `first`; the panels of the part begin at `at`."""
        piece = np.ascontiguousarray(stored(first + rows.start, len(rows)))
        to = at + turns * self._library.panel_bytes(weight.type, rows.start, weight.cols)
        self._library.pack(weight.type, piece.ctypes.data, len(rows), weight.cols, to, turns)

    def _read(self, part: Part, offset: int, n_bytes: int) -> U8:
        with PartReader(self._sources) as reader:
            return reader.read(part, offset, n_bytes)

    def _mapped_at(self, part: Part) -> int:
        """Address of a part in its mapped file. Raises ModelFormatError if the file ends before the part."""
        path = self._sources[part.source]
        if path not in self._mapped:
            self._mapped[path] = MappedFile(path)
        pages, end = self._mapped[path].pages, part.offset + part.n_bytes
        if end > len(pages):
            raise ModelFormatError(
                f"{path}: ends at byte {len(pages)}, {end - len(pages)} bytes early; the file was truncated "
                "while Camelid read it",
                path=path,
            )
        return pages.ctypes.data + part.offset


FORMS: dict[int, Callable[[WeightForms, Weight, Begin], WeightRecord]] = {
    FORM_F32: WeightForms.floats,
    FORM_ROWS: WeightForms.rows,
    **{form: partial(WeightForms.panels, form=form) for form in TURNS},
}


def is_mapped(weight: Weight) -> bool:
    """True if kernels look rows up in the mapped file, so that the weight needs no memory of its own."""
    return len(weight.parts) == 1 and not weight.load_ops and weight.parts[0].source != INLINE


def _in_panel_type(weight: Weight) -> Weight:
    stored, to = weight.type, panel_type(weight.type)
    return weight if to == stored else replace(weight, type=to).then("cast", stored)


def _piece_rows(weight: Weight) -> int:
    """Rows of a piece: whole panels, and whole heads if a load op permutes rows within a head."""
    heads = [int(op.args[1]) for op in weight.load_ops if op.name == "permute_rows"]
    step = math.lcm(PANEL_ROWS, *heads)
    return max(PIECE_BYTES // row_bytes(weight.type, weight.cols) // step, 1) * step
