"""Weights into panels and mapped rows: load ops piece by piece, files that changed.

The oracle is the definition of each load op, in NumPy on the whole matrix.
"""

from __future__ import annotations

import ctypes
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.support.native.kernels import VARIANTS, Panels

from camelid.backends.common import stored_rows
from camelid.backends.common.load_ops import LOAD_OPS
from camelid.backends.common.part_reader import PartReader
from camelid.errors import ModelFormatError
from camelid.plan.weights import LoadOp, Part, Weight
from camelid_native.cpu import weights as cpu_weights
from camelid_native.cpu.api import Library
from camelid_native.cpu.records import (
    FORM_F32,
    FORM_GATED,
    FORM_PANELS,
    FORM_ROWS,
    PANEL_ROWS,
    WeightRecord,
)
from camelid_native.cpu.weights import WeightForms

F32 = NDArray[np.float32]
ROWS, COLS, HEAD = 144, 40, 24  # a head is no whole number of panels
STORED: F32 = np.random.default_rng(6).standard_normal((ROWS, COLS), np.float32)
PICKED = (5, 0, 5, 143, *range(7, 61))  # two halves, neither of whole panels
CAST, HEADS = LoadOp("cast", ("f32",)), LoadOp("permute_rows", (ROWS // HEAD, HEAD))


def adjacent_pairs(values: F32) -> F32:
    order = [
        head + half + i for head in range(0, ROWS, HEAD) for i in range(HEAD // 2) for half in (0, HEAD // 2)
    ]
    return values[order]


@dataclass(frozen=True)
class Case:
    """A weight of `type` made of STORED by load ops, and its expected value."""

    type: str
    shape: tuple[int, ...]
    load_ops: tuple[LoadOp, ...]
    meaning: Callable[[F32], F32]
    n_parts: int = 1

    def weight(self, path: Path) -> Weight:
        path.write_bytes(STORED.tobytes())
        each = STORED.nbytes // self.n_parts
        parts = tuple(Part("model", i * each, each) for i in range(self.n_parts))
        return Weight(name="w", type=self.type, shape=self.shape, parts=parts, load_ops=self.load_ops)

    @property
    def values(self) -> F32:
        values = self.meaning(STORED).astype(np.float16 if self.type == "f16" else np.float32)
        return values.astype(np.float32).reshape(self.shape)


def same(values: F32) -> F32:
    return values


CASES = {
    "plain": Case("f32", (ROWS, COLS), (), same),
    "stack": Case("f32", (3, 48, COLS), (), same),
    "concat": Case("f32", (ROWS, COLS), (LoadOp("concat", (0,)),), same, 3),
    "heads": Case("f32", (ROWS, COLS), (HEADS,), adjacent_pairs),
    "rows": Case("f32", (50, COLS), (LoadOp("rows", (30, 50, ROWS)),), lambda v: v[30:80]),
    "pick": Case("f32", (len(PICKED), COLS), (LoadOp("pick", (ROWS, *PICKED)),), lambda v: v[[*PICKED]]),
    "cast": Case("f16", (ROWS, COLS), (CAST,), same),
    "cast, stack": Case("f16", (3, 48, COLS), (CAST,), same),
    "cast, heads": Case("f16", (ROWS, COLS), (CAST, HEADS), adjacent_pairs),
    "cast, pick": Case(
        "f16", (len(PICKED), COLS), (CAST, LoadOp("pick", (ROWS, *PICKED))), lambda v: v[[*PICKED]]
    ),
    "cast, transpose": Case("f16", (COLS, ROWS), (CAST, LoadOp("transpose", (ROWS, COLS))), np.transpose),
    "transpose": Case("f32", (COLS, ROWS), (LoadOp("transpose", (ROWS, COLS)),), np.transpose),
}


@pytest.fixture
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sets pieces of one panel, where heads allow it."""
    monkeypatch.setattr(cpu_weights, "PIECE_BYTES", 1)


@pytest.fixture
def bytes_read(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Counts the bytes read from each source."""
    counted: Counter[str] = Counter()
    read = PartReader.read

    def count(self: PartReader, part: Part, offset: int, n_bytes: int) -> Any:
        counted[part.source] += n_bytes
        return read(self, part, offset, n_bytes)

    monkeypatch.setattr(PartReader, "read", count)
    return counted


def packed(case: Case, path: Path, form: int = FORM_PANELS) -> F32:
    """The matrices in panels, unpacked."""
    forms, weight = WeightForms(Library(), 2), case.weight(path)
    forms.add([weight], {"model": str(path)})
    record = forms.record(weight, form)
    places = [place(j, record.rows, form) for j in range(record.rows)]
    return np.stack([[row(record, case.type, i, j) for j in places] for i in range(record.stack)])


def place(number: int, rows: int, form: int) -> int:
    """A row's index among the panels' rows."""
    half, within = divmod(number, rows // 2)
    panel, line = divmod(within, PANEL_ROWS)
    return PANEL_ROWS * (2 * panel + half) + line if form == FORM_GATED else number


def row(record: WeightRecord, type_name: str, matrix: int, number: int) -> F32:
    at = record.at + matrix * record.stack_bytes
    data = np.frombuffer((ctypes.c_uint8 * record.stack_bytes).from_address(at), np.uint8)
    return Panels(VARIANTS[-1], type_name, record.rows, record.cols, data).row(number)


@pytest.mark.usefixtures("small_pieces")
@pytest.mark.parametrize("form", [FORM_PANELS, FORM_GATED])
@pytest.mark.parametrize("name", CASES)
def test_panels_equal_the_load_ops_results(name: str, form: int, tmp_path: Path) -> None:
    case = CASES[name]
    got = packed(case, tmp_path / "model", form).reshape(case.shape)
    np.testing.assert_array_equal(got, case.values)


@pytest.mark.parametrize("name", CASES)
def test_rows_and_floats_equal_the_load_ops_results(name: str, tmp_path: Path) -> None:
    """Floats are not rounded to the weight's type."""
    case, forms = CASES[name], WeightForms(Library(), 2)
    weight, stored = case.weight(tmp_path / "model"), np.float16 if case.type == "f16" else np.float32
    forms.add([weight], {"model": str(tmp_path / "model")})
    wants = ((FORM_ROWS, case.values.astype(stored)), (FORM_F32, case.meaning(STORED)))
    for form, want in wants:
        got = ctypes.string_at(forms.record(weight, form).at, want.nbytes)
        np.testing.assert_array_equal(np.frombuffer(got, want.dtype), want.ravel())


@pytest.mark.usefixtures("small_pieces")
@pytest.mark.parametrize("name", sorted(CASES.keys() - {"pick", "rows", "heads"}))
def test_no_byte_is_read_twice(name: str, tmp_path: Path, bytes_read: Counter[str]) -> None:
    """Also for load ops that need the whole matrix for each row."""
    packed(CASES[name], tmp_path / "model")
    assert bytes_read == {"model": STORED.nbytes}


@pytest.mark.usefixtures("small_pieces")
@pytest.mark.parametrize("name", ["heads", "rows", "pick"])
def test_the_order_of_rows_is_computed_once(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[str] = []
    op = CASES[name].load_ops[0].name
    real = LOAD_OPS[op]
    monkeypatch.setitem(LOAD_OPS, op, lambda values, op: made.append(op.name) or real(values, op))
    packed(CASES[name], tmp_path / "model")
    assert made == [op]


@pytest.mark.parametrize("form", [FORM_ROWS, FORM_PANELS])
@pytest.mark.parametrize("short", [1, STORED.nbytes - 1])
def test_a_file_cut_short_is_refused(form: int, short: int, tmp_path: Path) -> None:
    path = tmp_path / "model"
    weight, forms = CASES["plain"].weight(path), WeightForms(Library(), 1)
    path.write_bytes(STORED.tobytes()[:-short])
    forms.add([weight], {"model": str(path)})
    with pytest.raises(ModelFormatError, match=f"ends at byte {STORED.nbytes - short}, {short} bytes early"):
        forms.record(weight, form)


def test_a_failed_file_leaves_no_record(tmp_path: Path) -> None:
    """The record exists before packing; with the file restored, it is packed again."""
    path = tmp_path / "model"
    weight, forms = CASES["plain"].weight(path), WeightForms(Library(), 2)
    path.write_bytes(STORED.tobytes()[:-1])
    forms.add([weight], {"model": str(path)})
    with pytest.raises(ModelFormatError), forms.packing() as record:
        record(weight, FORM_PANELS)
    path.write_bytes(STORED.tobytes())
    again = forms.record(weight, FORM_PANELS)
    np.testing.assert_array_equal([row(again, "f32", 0, j) for j in range(ROWS)], STORED)


@pytest.mark.usefixtures("small_pieces")
def test_no_thread_packs_after_the_caller_has_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The memory that the thread writes may be freed."""
    packs, real = list[str](), WeightForms._pack  # pyright: ignore[reportPrivateUsage]

    def slow(self: WeightForms, weight: Weight, *rest: Any) -> None:
        packs.append("begun")
        time.sleep(0.02)
        real(self, weight, *rest)
        packs.append("done")

    monkeypatch.setattr(WeightForms, "_pack", slow)
    weight, forms = CASES["plain"].weight(tmp_path / "model"), WeightForms(Library(), 2)
    forms.add([weight], {"model": str(tmp_path / "model")})
    with pytest.raises(ZeroDivisionError), forms.packing() as record:
        record(weight, FORM_PANELS)
        raise ZeroDivisionError
    assert packs.count("begun") == packs.count("done") <= 2
    assert (weight.name, FORM_PANELS) not in forms._records  # pyright: ignore[reportPrivateUsage]


def test_one_whole_matrix_is_in_memory_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A load op on a whole matrix waits until the previous one is packed."""
    seen = list[str]()
    for owner, name in ((stored_rows, "_changed"), (WeightForms, "_pack")):
        real = getattr(owner, name)

        def noted(*args: Any, name: str = name, real: Callable[..., Any] = real) -> Any:
            found = real(*args)
            seen.append(name)
            return found

        monkeypatch.setattr(owner, name, noted)
    weight, forms = CASES["transpose"].weight(tmp_path / "model"), WeightForms(Library(), 1)
    weights = [replace(weight, name=name) for name in "abc"]
    forms.add(weights, {"model": str(tmp_path / "model")})
    with forms.packing() as record:
        for weight in weights:
            record(weight, FORM_PANELS)
    assert seen == ["_changed", "_pack"] * 3


def test_rows_come_from_the_latest_path(tmp_path: Path) -> None:
    """The same source name, another path."""
    forms, seen = WeightForms(Library(), 1), list[F32]()
    weight = CASES["plain"].weight(tmp_path / "first")
    for name, factor in (("first", 1), ("second", 2)):
        (tmp_path / name).write_bytes((STORED * np.float32(factor)).tobytes())
        forms.add([weight], {"model": str(tmp_path / name)})
        at = forms.record(weight, FORM_ROWS).at
        seen.append(np.frombuffer(ctypes.string_at(at, STORED.nbytes), np.float32).reshape(ROWS, COLS))
    np.testing.assert_array_equal(seen, [STORED, STORED * 2])
