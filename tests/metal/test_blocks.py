"""Blocks of weights: shared with a file's pages where Metal can, copied and counted elsewhere."""

from __future__ import annotations

import asyncio
import mmap
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from tests.metal.on_rig import MetalOnRig

from camelid.backends.base import OpenSpec
from camelid.errors import ModelFormatError
from camelid.plan.weights import Part, Weight
from camelid_native.mlx import blocks
from camelid_native.mlx.blocks import Blocks

ROWS, COLS, ROW_BYTES = 32, 64, 68  # of q8_0
N_BYTES = ROWS * ROW_BYTES


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "weights"
    path.write_bytes(np.random.default_rng(5).bytes(64 * N_BYTES))
    return path


@pytest.fixture
def shares(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """MLX shares memory, as on Metal: what it shares, and the arrays of it."""
    shared: list[Any] = []
    asarray = mx.asarray

    def sharing(values: Any, copy: bool | None = None) -> mx.array:
        array = asarray(values)
        shared.append((values, array))
        return array

    monkeypatch.setattr(mx, "asarray", sharing)
    yield shared
    shared.clear()


def weight_at(path: Path, offset: int, rows: int = ROWS) -> Weight:
    part = Part(str(path), offset, rows * ROW_BYTES)
    return Weight(name=f"w{offset}", type="q8_0", shape=(rows, COLS), parts=(part,))


def loaded(path: Path, offset: int, reader: Blocks, rows: int = ROWS) -> bytes:
    found = reader.read(weight_at(path, offset, rows), {str(path): str(path)})
    assert found.shape == (rows, ROW_BYTES) and found.dtype == mx.uint8
    return np.asarray(found).tobytes()


def counted(path: Path, offset: int) -> dict[str, int]:
    """The counts of a load with the file's bytes."""
    reader = Blocks()
    assert loaded(path, offset, reader) == path.read_bytes()[offset : offset + N_BYTES]
    return {name: n for name, n in reader.counters.items() if n}


def n_descriptors() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


PAGE = mmap.PAGESIZE
LAST = 63 * N_BYTES  # of the file: its last page is not whole


@pytest.mark.parametrize("offset", [0, 32, PAGE, PAGE + 16, LAST])
def test_an_aligned_part_is_shared_in_whole_pages(offset: int, file: Path, shares: list[Any]) -> None:
    assert counted(file, offset) == {"shared_block_bytes": N_BYTES}
    window, _ = shares[0]
    assert window.ctypes.data % PAGE == 0 and window.nbytes % PAGE == 0


def test_rows_are_a_view_of_the_shared_pages(file: Path, shares: list[Any]) -> None:
    found = Blocks().read(weight_at(file, PAGE + 32), {str(file): str(file)})
    starts = [np.asarray(array).ctypes.data for array in (found, shares[0][1])]
    assert starts[0] - starts[1] == 32


@pytest.mark.parametrize("offset", [1, 8, PAGE + 2])
def test_a_part_at_an_odd_address_is_copied(offset: int, file: Path, shares: list[Any]) -> None:
    assert counted(file, offset) == {"copied_block_bytes": N_BYTES} and not shares


def test_a_device_that_does_not_share_copies(file: Path) -> None:
    assert counted(file, 64) == {"copied_block_bytes": N_BYTES}


def test_a_part_of_too_many_items_is_copied(
    file: Path, shares: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blocks, "MOST_ITEMS", PAGE // 4)  # of 4 bytes: a row has 68
    assert counted(file, 0) == {"shared_block_bytes": N_BYTES}
    monkeypatch.setattr(blocks, "MOST_ITEMS", PAGE // 4 - 1)
    assert counted(file, 0) == {"copied_block_bytes": N_BYTES}


def test_a_file_has_one_descriptor(file: Path, shares: list[Any]) -> None:
    before, reader = n_descriptors(), Blocks()
    for i in range(0, 64, 4):
        loaded(file, i * N_BYTES, reader)
    assert len(shares) == 16 and n_descriptors() == before + 1
    shares.clear()
    assert n_descriptors() == before


def test_a_changed_file_is_mapped_anew(file: Path, shares: list[Any]) -> None:
    reader = Blocks()
    before = loaded(file, 0, reader)
    other = file.with_name("other")
    other.write_bytes(bytes(2 * N_BYTES))
    other.replace(file)
    assert loaded(file, 0, reader) == bytes(N_BYTES) != before


def test_a_truncated_file_is_refused_with_a_way_out(file: Path) -> None:
    with pytest.raises(ModelFormatError, match=r"1 bytes early; the file was truncated .* fetch it again"):
        loaded(file, 63 * N_BYTES + 1, Blocks())
    with pytest.raises(ModelFormatError, match="cannot be read"):
        loaded(file.with_name("none"), 0, Blocks())


def test_a_backend_counts_its_own_blocks(file: Path) -> None:
    want = {"shared_block_bytes": 0, "copied_block_bytes": N_BYTES, "joined_block_bytes": 2 * N_BYTES}

    async def run() -> dict[str, int]:
        backend, sources = MetalOnRig(), {str(file): str(file)}
        await backend.open(OpenSpec())
        try:
            both = weight_at(file, 64)
            joined = replace(weight_at(file, 0, 2 * ROWS), parts=(*both.parts, *weight_at(file, 0).parts))
            await backend.load([both, joined.then("concat", 0)], sources)
            counters = backend.memory().counters
            return {name: counters[name] for name in want}
        finally:
            await backend.close()

    assert asyncio.run(run()) == want
