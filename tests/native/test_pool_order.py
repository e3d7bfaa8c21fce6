"""Queued runs on several threads: the second run reads all results of the first."""

from __future__ import annotations

import struct
from ctypes import addressof
from itertools import cycle, islice

import numpy as np
import pytest
from numpy.typing import NDArray

from camelid_native.cpu.api import Library
from camelid_native.cpu.records import OpRecord, ProgramRecord, ViewRecord

COLS = 4096  # per row, which is one thread's share
RUNS = 200
F32 = NDArray[np.float32]


def view(array: F32, first: int = 0, stride: int = COLS) -> ViewRecord:
    """A view of rows from `first` on; with a stride of 0, one row repeated."""
    return ViewRecord(at=array.ctypes.data + array.strides[0] * first, cols=COLS, stride=stride)


class Adding:
    """A program of one op, x += r, for a step of `n_rows`."""

    def __init__(self, library: Library, n_rows: int, x: ViewRecord, r: ViewRecord) -> None:
        self.step = struct.pack("<I", n_rows)  # all step data that the op reads
        self._ops = (OpRecord * 1)()
        self._ops[0].kind, self._ops[0].attrs[0] = library.kinds["add"], 1.0
        self._ops[0].views[:2] = x, r
        self.record = ProgramRecord(ops=addressof(self._ops), n_ops=1)


@pytest.mark.parametrize("n_threads", [2, 3, 4])
def test_a_run_begins_after_all_threads_ended_the_previous_run(n_threads: int) -> None:
    """The first thread has no share of `count`, which adds 1 to the last row of x; each thread has a row of
    `add`, which reads that row. Neither op synchronizes before its read or after its write.
    """
    library, one = Library(), np.ones((1, COLS), np.float32)
    x, y = np.zeros((n_threads - 1, COLS), np.float32), np.zeros((n_threads, COLS), np.float32)
    count = Adding(library, n_threads - 1, view(x), view(one, stride=0))
    add = Adding(library, n_threads, view(y), view(x, n_threads - 2, stride=0))
    pool = library.start(range(n_threads))
    for program in islice(cycle([count, add]), 2 * RUNS):
        library.submit(pool, addressof(program.record), program.step, 0)
        library.wait(pool, 1)
    library.wait(pool)
    library.stop(pool)
    assert (x == RUNS).all()
    assert (y == sum(range(RUNS + 1))).all()
