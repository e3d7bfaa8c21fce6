"""Weights on the device: a buffer after its load ops equals NumPy's result, bit for bit."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from math import prod
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.golden.quant_oracle import random_blocks
from tests.support.parity.adapters import need_driver
from tests.support.parity.case_tools import array, encoded, weight

from camelid.backends.base import OpenSpec
from camelid.backends.common.codecs import decode
from camelid.backends.common.grid_tables import book_bytes
from camelid.backends.common.load_ops import load_rows
from camelid.backends.webgpu.backend import WebGpuBackend
from camelid.backends.webgpu.host_python import WgpuHost
from camelid.backends.webgpu.layouts import (
    LAYOUTS,
    STAGING_BYTES,
    buffer_name,
    device_bytes,
    planes_of,
    row_multiple,
)
from camelid.formats.quants import QUANTS
from camelid.plan.weights import LoadOp, Part, Weight

pytestmark = pytest.mark.parity

STORED = ("f32", "f16", "bf16")
Ops = tuple[LoadOp, ...]


def stored(folder: Path, shape: tuple[int, ...], type_: str, raws: Sequence[bytes], *ops: LoadOp) -> Weight:
    """A weight with parts in files, each at an unaligned offset."""
    parts: list[Part] = []
    for i, raw in enumerate(raws):
        (folder / f"part{i}").write_bytes(b"odd" + raw)
        parts.append(Part(f"part{i}", 3, len(raw)))
    return Weight(name="w", type=type_, shape=shape, parts=tuple(parts), load_ops=ops)


def on_device(folder: Path, made: Weight) -> bytes:
    """The bytes of the weight's buffer after loading."""

    async def load() -> bytes:
        host = WgpuHost()
        backend = WebGpuBackend(host)
        await backend.open(OpenSpec(adapter=need_driver("llvmpipe")))
        await backend.load([made], {part.source: str(folder / part.source) for part in made.parts})
        data = await host.read_state(buffer_name(made), 0, -(-device_bytes(made) // 4) * 4)
        await backend.close()
        return data[: device_bytes(made)]

    return asyncio.run(load())


def in_numpy(folder: Path, made: Weight) -> NDArray[np.float32]:
    def read(part: Part, at: int, n: int) -> NDArray[np.uint8]:
        return np.fromfile(folder / part.source, np.uint8, n, offset=part.offset + at)

    return load_rows(made, read, 0, made.rows)


def same(folder: Path, made: Weight) -> bool:
    raw = np.frombuffer(on_device(folder, made), np.uint8)
    got = decode(made.type, raw, prod(made.shape)).reshape(made.rows, made.cols)
    return np.array_equal(got.view(np.uint32), in_numpy(folder, made).view(np.uint32))


def casts(type_: str) -> list[Ops]:
    """Load ops: stored type, and cast to f32."""
    return [(), (LoadOp("cast", (type_,)),)] if type_ != "f32" else [()]


WAYS: dict[str, tuple[tuple[int, ...], int, Ops]] = {  # shape, stored numbers, load ops
    "transpose": ((5, 3), 15, (LoadOp("transpose", (3, 5)),)),
    "transpose of a stack": ((3, 5, 4), 60, (LoadOp("transpose", (4, 5)),)),
    "transpose, rows, transpose": (
        (2, 3, 4),
        48,
        (LoadOp("transpose", (24, 2)), LoadOp("rows", (1, 1, 2)), LoadOp("transpose", (4, 3))),
    ),
    "permute_rows": ((24, 7), 168, (LoadOp("permute_rows", (3, 8)),)),
    "permute_rows of a bias": ((24,), 24, (LoadOp("permute_rows", (2, 12)),)),
    "rows": ((3, 5), 35, (LoadOp("rows", (2, 3, 7)),)),
    "rows of a bias": ((5,), 11, (LoadOp("rows", (6, 5, 11)),)),
    "transpose, rows": ((4, 3), 30, (LoadOp("transpose", (3, 10)), LoadOp("rows", (5, 4, 10)))),
    "pick": ((6, 3), 12, (LoadOp("pick", (4, 3, 3, 0, 2, 0, 3)),)),
    "pick, rows": ((2, 3), 12, (LoadOp("pick", (4, 3, 1, 0, 2)), LoadOp("rows", (1, 2, 4)))),
    "transpose, pick": ((4, 5), 15, (LoadOp("transpose", (5, 3)), LoadOp("pick", (3, 2, 0, 2, 2)))),
    "pick of stacks": ((2, 3, 2), 18, (LoadOp("pick", (3, 2, 0)),)),
    "concat": ((9, 5), 45, (LoadOp("concat", (0,)),)),
}


@pytest.mark.parametrize("type_", STORED)
@pytest.mark.parametrize("way", WAYS)
def test_load_op(way: str, type_: str, tmp_path: Path) -> None:
    shape, n, ops = WAYS[way]
    raw = encoded(type_, array(1, n))
    for cast in casts(type_):
        assert same(tmp_path, stored(tmp_path, shape, "f32" if cast else type_, [raw], *cast, *ops))


@pytest.mark.parametrize("type_", STORED)
def test_add_follows_the_cast(type_: str, tmp_path: Path) -> None:
    raw = encoded(type_, array(2, 33))
    cast = LoadOp("cast", (type_,))
    assert same(tmp_path, stored(tmp_path, (33,), "f32", [raw], cast, LoadOp("add", (1.0,))))


@pytest.mark.parametrize("type_", STORED)
def test_parts_of_odd_counts_follow_each_other(type_: str, tmp_path: Path) -> None:
    """Stacked experts: a part may end inside a word."""
    raws = [encoded(type_, array(3 + i, n)) for i, n in enumerate((15, 5, 25))]
    for cast in casts(type_):
        to = "f32" if cast else type_
        assert same(tmp_path, stored(tmp_path, (9, 5), to, raws, *cast, LoadOp("concat", (0,))))
        turned = (*cast, LoadOp("transpose", (5, 9)))
        assert same(tmp_path, stored(tmp_path, (9, 5), to, raws, *turned))


@pytest.mark.parametrize("type_", STORED)
def test_a_matrix_larger_than_the_staging_buffer_is_transposed(type_: str, tmp_path: Path) -> None:
    rows, cols = 1501, 1601
    raw = encoded(type_, array(6, rows * cols))
    assert len(raw) > STAGING_BYTES
    made = stored(tmp_path, (cols, rows), type_, [raw], LoadOp("transpose", (rows, cols)))
    assert same(tmp_path, made)


@pytest.mark.parametrize("type_", STORED)
def test_runs_of_rows_are_scaled(type_: str, tmp_path: Path) -> None:
    """By the places of the loaded rows; a piece of a cut weight has the runs of its own rows."""
    cast = () if type_ == "f32" else (LoadOp("cast", (type_,)),)
    scale = LoadOp("scale_rows", (2, 0.3, 4, 1.0, 3, -2.5))
    raw = encoded(type_, array(6, 45))
    values = decode(type_, np.frombuffer(raw, np.uint8), 45).reshape(5, 9).T
    want = values * np.repeat(np.array([0.3, 1.0, -2.5], np.float32), [2, 4, 3])[:, None]
    turned = (*cast, LoadOp("transpose", (5, 9)), scale)
    assert on_device(tmp_path, stored(tmp_path, (9, 5), "f32", [raw], *turned)) == want.tobytes()
    piece = stored(tmp_path, (4, 5), "f32", [raw], *turned, LoadOp("rows", (1, 4, 9)))
    assert on_device(tmp_path, piece) == want[1:5].tobytes()


@pytest.mark.parametrize("type_", STORED)
def test_special_numbers_keep_their_bits(type_: str, tmp_path: Path) -> None:
    special = np.array([0.0, -0.0, np.inf, -np.inf, 1.5, -(2.0**-14), 65504.0, 1.0], np.float32)
    raw = encoded(type_, special)
    made = stored(tmp_path, (2, 4), "f32", [raw], LoadOp("cast", (type_,)), LoadOp("transpose", (4, 2)))
    assert same(tmp_path, made)


@pytest.mark.parametrize("type_", LAYOUTS)
def test_a_stack_in_parts_is_the_stack_in_one(type_: str, tmp_path: Path) -> None:
    """Each part has an odd number of blocks, so that parts share words of a plane."""
    shape = (4, 3, max(QUANTS[type_].block, row_multiple(type_)))
    raw = weight(type_, 7, *shape).raw
    each = len(raw) // 4
    wanted = on_device(tmp_path, stored(tmp_path, shape, type_, [raw]))
    parts = [raw[i * each : (i + 1) * each] for i in range(4)]
    assert on_device(tmp_path, stored(tmp_path, shape, type_, parts)) == wanted
    book = LAYOUTS[type_].book
    excess = len(wanted) - len(raw) - (len(book_bytes(book)) if book else 0)
    assert 0 <= excess < 16 * len(planes_of(type_))
    data = wanted[: -len(book_bytes(book))] if book else wanted
    assert sorted(data.replace(b"\0", b"")) == sorted(raw.replace(b"\0", b""))


def test_a_weight_larger_than_the_staging_buffer_is_split_in_tiles(tmp_path: Path) -> None:
    rows = STAGING_BYTES // 18 // 8 + 3
    raw = random_blocks("q4_0", 8, n=rows * 8 + 8, finite=True).tobytes()
    got = on_device(tmp_path, stored(tmp_path, (rows + 1, 256), "q4_0", [raw]))
    blocks = np.frombuffer(raw, np.uint8).reshape(-1, 18)
    assert len(raw) > STAGING_BYTES and got[: 16 * len(blocks)] == blocks[:, 2:].tobytes()
    assert got[16 * len(blocks) :][: 2 * len(blocks)] == blocks[:, :2].tobytes()
