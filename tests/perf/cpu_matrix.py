"""Speed of matrix products by weight type: `python -m tests.perf.cpu_matrix [q4_k ...]`.

Decode: one row by a matrix larger than the caches, in GB/s of panels beside a plain read of as many bytes
just before it. Prefill: 512 rows, in GOPS (two operations a weight and row) and as a share of the peak of the
machine's int8 units. Best of several runs; other load on the machine affects every figure.
"""

from __future__ import annotations

import argparse
import ctypes
import struct
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from time import perf_counter

import numpy as np

from camelid.formats.quants import quant
from camelid_native.cpu.api import Library
from camelid_native.cpu.memory import Memory
from camelid_native.cpu.records import FORM_PANELS, OpRecord, ProgramRecord, ViewRecord, WeightRecord
from camelid_native.cpu.threads import processors

TYPES = ("q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "q2_k", "q4_k", "q5_k", "q6_k", "iq4_nl", "f16", "f32")
COLS = 2048
DECODE_BYTES = 96 << 20  # of panels: beyond the third-level cache
PREFILL_ROWS, PREFILL_OUT = 512, 2048
PEAK_GOPS = 469.0  # of one core here: 64 products of int8 a cycle, two operations each, 3.66 GHz
CALM = 0x2C  # every byte of the panels: small scales, no infinities
REPEATS = 9


@dataclass(frozen=True)
class Product:
    """One linear over given rows, compiled for some threads."""

    library: Library
    pool: int
    program: ProgramRecord
    keep: tuple[object, ...]  # memory that the records point to

    def seconds(self, rows: int) -> float:
        """The shortest of several runs."""
        step = struct.pack("<16I", rows, *[0] * 15)
        return min(self._seconds(step) for _ in range(REPEATS))

    def _seconds(self, step: bytes) -> float:
        start = perf_counter()
        self.library.submit(self.pool, ctypes.addressof(self.program), step, 0)
        self.library.wait(self.pool)
        return perf_counter() - start


@contextmanager
def product(library: Library, n_threads: int, type_name: str, rows: int, n_out: int) -> Iterator[Product]:
    x, y = Memory(4 * rows * COLS), Memory(4 * rows * n_out)
    x.write(0, np.random.default_rng(0).normal(size=(rows, COLS)).astype(np.float32).tobytes())
    panels = Memory(library.panel_bytes(type_name, n_out, COLS))
    ctypes.memset(panels.at, CALM, panels.n_bytes)
    op = OpRecord(kind=library.kinds["linear"])
    op.views[0] = ViewRecord(at=y.at, cols=n_out, stride=n_out)
    op.views[1] = ViewRecord(at=x.at, cols=COLS, stride=COLS)
    op.weights[0] = WeightRecord(
        at=panels.at, form=FORM_PANELS, type=quant(type_name).id, stack=1, rows=n_out, cols=COLS
    )
    program = ProgramRecord(ops=ctypes.addressof(op), n_ops=1, capacity_rows=rows)
    scratch = Memory(library.scratch_bytes(ctypes.addressof(program), n_threads))
    program.scratch, program.scratch_bytes = scratch.at, scratch.n_bytes
    pool = library.start(processors()[:n_threads], with_host=False)
    try:
        yield Product(library, pool, program, (x, y, panels, op, scratch))
    finally:
        library.stop(pool)


def read_gbps(n_threads: int) -> float:
    """Bandwidth of a plain read by NumPy of as many bytes as decode reads."""
    parts = np.array_split(np.ones(DECODE_BYTES // 8, np.uint64), n_threads)

    def seconds(pool: ThreadPoolExecutor) -> float:
        start = perf_counter()
        list(pool.map(np.bitwise_or.reduce, parts))
        return perf_counter() - start

    with ThreadPoolExecutor(n_threads) as pool:
        return DECODE_BYTES / min(seconds(pool) for _ in range(REPEATS)) / 1e9


def decode_gbps(library: Library, n_threads: int, type_name: str) -> float:
    n_out = DECODE_BYTES // library.panel_bytes(type_name, 16, COLS) * 16
    with product(library, n_threads, type_name, 1, n_out) as it:
        return library.panel_bytes(type_name, n_out, COLS) / it.seconds(1) / 1e9


def prefill_gops(library: Library, n_threads: int, type_name: str) -> float:
    with product(library, n_threads, type_name, PREFILL_ROWS, PREFILL_OUT) as it:
        return 2 * PREFILL_ROWS * PREFILL_OUT * COLS / it.seconds(PREFILL_ROWS) / 1e9


def measure(library: Library, types: Sequence[str], n_threads: int) -> Iterator[str]:
    for name in types:
        read, decode = read_gbps(n_threads), decode_gbps(library, n_threads, name)
        prefill = prefill_gops(library, n_threads, name)
        reading = f"decode {decode:5.1f} GB/s, {decode / read:4.0%} of {read:.1f} read"
        share = prefill / (PEAK_GOPS * n_threads)
        yield f"{name:7} {n_threads} threads: {reading}; prefill {prefill:4.0f} GOPS, {share:4.0%} of peak"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("types", nargs="*", default=TYPES)
    parser.add_argument("--variant", default="")
    options = parser.parse_args()
    library = Library(options.variant)
    print(library.variant)
    for n_threads in range(1, len(processors()) + 1):
        for line in measure(library, options.types, n_threads):
            print(line, flush=True)


if __name__ == "__main__":
    main()
