"""Typed ctypes interface of the compiled library, bound to one variant of its kernels."""

from __future__ import annotations

import ctypes
import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from ctypes import c_char_p, c_uint32, c_uint64, c_void_p
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from camelid.errors import BackendError
from camelid.formats.quants import QUANTS, quant
from camelid_native.cpu.library import find, load
from camelid_native.cpu.records import PANEL_ROWS, RECORDS
from camelid_native.cpu.threads import may_pin

# name: (result, arguments), as in c/api.c
FUNCTIONS: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "cam_n_variants": (c_uint32, ()),
    "cam_variant_name": (c_char_p, (c_uint32,)),
    "cam_runs_here": (c_uint32, (c_uint32,)),
    "cam_record_bytes": (c_uint32, (c_uint32,)),
    "cam_word": (c_char_p, (c_uint32,)),
    "cam_op_name": (c_char_p, (c_uint32,)),
    "cam_scratch_bytes": (c_uint64, (c_uint32, c_void_p, c_uint32)),
    "cam_start": (c_void_p, (c_uint32, c_void_p, c_uint32)),
    "cam_submit": (c_uint32, (c_void_p, c_uint32, c_void_p, c_char_p, c_void_p)),
    "cam_wait": (None, (c_void_p, c_uint32)),
    "cam_stop": (None, (c_void_p,)),
    "cam_lanes": (c_uint32, (c_uint32,)),
    "cam_multiply": (c_uint32, (c_uint32, c_uint32)),
    "cam_encode": (c_uint32, (c_uint32, c_uint32, c_void_p, c_void_p, c_uint64)),
    "cam_quantize": (c_uint32, (c_uint32, c_uint32, c_void_p, c_void_p, c_uint32, c_uint64, c_void_p)),
    "cam_panel_bytes": (c_uint64, (c_uint32,) * 4),
    "cam_pack": (None, (c_uint32, c_uint32, c_void_p, c_void_p, *(c_uint32,) * 5, c_void_p)),
}


class Library:
    """The compiled kernels in one variant; variant "" selects the fastest that this machine supports.

    Raises BackendError if the library is missing or this machine does not support the variant.
    """

    def __init__(self, variant: str = "") -> None:
        self._c = _typed(load())
        _check_records(self._c)
        self._number = self._choose(variant)

    @property
    def variant(self) -> str:
        return _text(self._c.cam_variant_name(self._number))

    @cached_property
    def build(self) -> str:
        """SHA-256 of the library file, 16 hex digits."""
        path = find()
        return _hash(path, path.stat().st_mtime_ns) if path else ""

    @cached_property
    def variants(self) -> Mapping[str, bool]:
        """Variant -> True if this machine supports it; the slowest variant first."""
        c = self._c
        return {_text(c.cam_variant_name(i)): bool(c.cam_runs_here(i)) for i in range(c.cam_n_variants())}

    @cached_property
    def kinds(self) -> Mapping[str, int]:
        """Op name -> number, for each op with a kernel."""
        return dict(_names(self._c.cam_op_name))

    @cached_property
    def words(self) -> Mapping[str, int]:
        """Attribute word -> number."""
        return dict(_names(self._c.cam_word))

    @cached_property
    def weight_types(self) -> frozenset[str]:
        """Weight types with a panel format."""
        rows = QUANTS.values()
        return frozenset(row.name for row in rows if self.panel_bytes(row.name, PANEL_ROWS, row.block))

    def panel_bytes(self, type_name: str, rows: int, cols: int) -> int:
        """Bytes of a matrix in panels; 0 if the type has no panel format."""
        return self._c.cam_panel_bytes(self._number, quant(type_name).id, rows, cols)

    def pack(self, type_name: str, stored_at: int, rows: int, cols: int, panels_at: int, every: int) -> None:
        """Packs rows in blocks of the type into panels.

        `every` is the stride in panels: 1 writes panels back to back, 2 leaves each second place free.
        """
        n_panels = -(-rows // PANEL_ROWS)
        type_id = quant(type_name).id
        self._c.cam_pack(self._number, type_id, stored_at, None, rows, cols, 0, n_panels, every, panels_at)

    def encode(self, type_name: str, values_at: int, n: int, blocks_at: int) -> bool:
        """Encodes n values, whole blocks, without search. Returns False for a type without an encoder."""
        return not self._c.cam_encode(self._number, quant(type_name).id, values_at, blocks_at, n)

    def quantize(
        self, type_name: str, values_at: int, importance_at: int | None, cols: int, n: int, blocks_at: int
    ) -> bool:
        """Quantizes n values, whole rows of `cols`, by search; `importance_at` None weights all columns
        alike. Returns False for a type without a quantizer.
        """
        type_id = quant(type_name).id
        return not self._c.cam_quantize(self._number, type_id, values_at, importance_at, cols, n, blocks_at)

    def scratch_bytes(self, program_at: int, n_threads: int) -> int:
        """Bytes of scratch memory for a program's kernels, beside the plan's own buffers."""
        return self._c.cam_scratch_bytes(self._number, program_at, n_threads)

    def multiply(self, n: int) -> int:
        """Runs `n` rounds of int8 multiply-adds in registers. Returns the number of operations, two per
        multiply-add."""
        self._c.cam_multiply(self._number, n)
        return 64 * n * self._c.cam_lanes(self._number)

    def start(self, cpus: Sequence[int], *, with_host: bool = True) -> int:
        """Starts a pool of one thread per entry of `cpus`. Returns its handle.

        If `may_pin` permits, each thread is pinned to its processor. With `with_host`, a pinned pool starts
        one thread fewer: no processor is left for Python's thread, so it computes while it waits for a step.
        A caller that waits after each op passes `with_host=False`: its wait begins too late to compute.
        Raises BackendError if the system cannot start the threads.
        """
        pinned = (c_uint32 * len(cpus))(*cpus) if may_pin(cpus) else None
        pool = self._c.cam_start(len(cpus), pinned, with_host and pinned is not None)
        if not pool:
            raise BackendError("the threads of backend 'cpu' cannot be started", backend="cpu")
        return pool

    def submit(self, pool: int, program_at: int, step: bytes, result_at: int) -> None:
        """Queues a run and returns at once. The caller keeps the step's bytes alive until the run has ended.

        Raises BackendError if the threads cannot be restarted in a forked process.
        """
        if not self._c.cam_submit(pool, self._number, program_at, step, result_at):
            raise BackendError(
                "the threads of backend 'cpu' cannot be restarted after a fork; load the model again",
                backend="cpu",
            )

    def wait(self, pool: int, most: int = 0) -> None:
        """Waits until at most `most` runs are unfinished. Other Python threads continue meanwhile."""
        self._c.cam_wait(pool, most)

    def stop(self, pool: int) -> None:
        """Ends the pool's threads."""
        self._c.cam_stop(pool)

    def _choose(self, wanted: str) -> int:
        runs = [name for name, can in self.variants.items() if can]
        name = wanted or runs[-1]
        if name not in runs:
            raise BackendError(
                f"backend 'cpu' has no variant {wanted!r} for this machine; supported: {', '.join(runs)}",
                backend="cpu",
            )
        return list(self.variants).index(name)


@cache
def _hash(path: Path, written_ns: int) -> str:  # noqa: ARG001 - part of the cache key
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16]


def _typed(library: ctypes.CDLL) -> ctypes.CDLL:
    for name, (result, arguments) in FUNCTIONS.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library


def _check_records(library: ctypes.CDLL) -> None:
    """Raises BackendError if the library's record sizes differ: kernels would access wrong addresses."""
    sizes = [library.cam_record_bytes(i) for i in range(len(RECORDS))]
    own = [ctypes.sizeof(record) for record in RECORDS]
    if sizes != own:
        raise BackendError(
            f"the compiled kernels have records of {sizes} bytes, expected {own}; rebuild them: "
            "python -m camelid_native.build",
            backend="cpu",
        )


def _names(name_of: Callable[[int], bytes | None]) -> Iterator[tuple[str, int]]:
    number = 0
    while name := name_of(number):
        yield _text(name), number
        number += 1


def _text(name: bytes) -> str:
    return name.decode("ascii")
