"""Weights in the WASM kernels' memory: every load op, in every form that kernels read.

The oracle is the definition of each load op, in NumPy on the whole matrix, and of panels of floats, which
store 16 rows by column.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.native.test_cpu_weights import CASES, COLS, ROWS, STORED
from tests.support.node_host import NodeHost, wasm_host

from camelid.backends.base import OpenSpec
from camelid.backends.common.codecs import encode
from camelid.errors import BackendError, CamelidError, ModelFormatError
from camelid.plan.weights import LoadOp, Part, Weight, inline_part
from camelid_native.cpu.records import FORM_F32, FORM_PANELS, FORM_ROWS, TURNS
from camelid_native.wasm.backend import WasmBackend
from camelid_native.wasm.weights import FORMS

pytestmark = pytest.mark.parity

F32 = NDArray[np.float32]
DTYPES = {"f32": np.float32, "f16": np.float16}
PANEL_ROWS = 16
READ_BYTES = 8 << 20  # read from a file at once
# More than two tiles; neither heads and panels nor tiles and heads divide each other.
LARGE_ROWS, LARGE_COLS, HEAD = 4128, 560, 96
LARGE: F32 = np.random.default_rng(2).standard_normal((LARGE_ROWS, LARGE_COLS), np.float32)


@pytest.fixture(scope="module")
def host() -> NodeHost:
    return wasm_host()


def loaded(host: NodeHost, weight: Weight, form: int, sources: dict[str, Path]) -> bytes:
    """The bytes of the weight's buffer."""

    async def load() -> bytes:
        backend = WasmBackend(host)
        await backend.open(OpenSpec(adapter="wasm", threads=1))
        weights = backend._weights
        weights.add([weight], sources)
        weights.record(weight, form)
        section = weights.taken().json()
        try:
            await host.load(section, weights.sources)
            (buffer,) = section["buffers"]
            return await host.read_state(f"weight/w/{FORMS[form]}", 0, buffer["bytes"])
        finally:
            await backend.close()

    return asyncio.run(load())


def values(data: bytes, form: int, weight: Weight) -> F32:  # [rows, cols]
    """The buffer's values."""
    numbers = np.frombuffer(data, np.float32 if form == FORM_F32 else DTYPES[weight.type])
    if form not in TURNS:
        return numbers.astype(np.float32).reshape(weight.rows, weight.cols)
    stack = weight.shape[0] if len(weight.shape) > 2 else 1
    turns, n = TURNS[form], weight.rows // stack // TURNS[form]
    panels = numbers.reshape(stack, -1, turns, weight.cols, PANEL_ROWS).transpose(0, 2, 1, 4, 3)
    rows = panels.reshape(stack, turns, -1, weight.cols)
    assert not rows[:, :, n:].any(), "padding of the last panel is not zero"
    return rows[:, :, :n].astype(np.float32).reshape(weight.rows, weight.cols)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", CASES)
def test_buffers_equal_the_load_ops_results(name: str, form: int, host: NodeHost, tmp_path: Path) -> None:
    case = CASES[name]
    weight = case.weight(tmp_path / "model")
    data = loaded(host, weight, form, {"model": tmp_path / "model"})
    want = case.meaning(STORED).astype(np.float32)
    if not (form == FORM_F32 and case.type == "f16"):  # float32 is not read from the cast
        want = case.values
    np.testing.assert_array_equal(values(data, form, weight), want.reshape(weight.rows, weight.cols))


def large(type_name: str, shape: tuple[int, ...], *ops: LoadOp) -> Weight:
    """A weight of LARGE, stored in float16."""
    cast = (LoadOp("cast", ("f16",)),) if type_name != "f16" else ()
    part = Part("model", 6, 2 * LARGE.size)
    return Weight(name="w", type=type_name, shape=shape, parts=(part,), load_ops=(*cast, *ops))


HALVES = LARGE.astype(np.float16).astype(np.float32)
HEADS = HALVES.reshape(-1, 2, HEAD // 2, LARGE_COLS).swapaxes(1, 2).reshape(LARGE.shape)
PERMUTED = LoadOp("permute_rows", (LARGE_ROWS // HEAD, HEAD))
LARGE_CASES: dict[str, tuple[Weight, F32]] = {
    "plain": (large("f16", LARGE.shape), HALVES),
    "stack": (large("f32", (3, LARGE_ROWS // 3, LARGE_COLS)), HALVES),
    "heads": (large("f16", LARGE.shape, PERMUTED), HEADS),
    "cast, heads, add": (
        large("f32", LARGE.shape, PERMUTED, LoadOp("add", (0.1,))),
        HEADS + np.float32(0.1),
    ),
    "transpose": (large("f32", LARGE.shape[::-1], LoadOp("transpose", LARGE.shape)), HALVES.T),
    "scale_rows": (
        large("f32", LARGE.shape, LoadOp("scale_rows", (100, 0.3, LARGE_ROWS - 101, 1.0, 1, 2.5))),
        HALVES * np.repeat(np.array([0.3, 1.0, 2.5], np.float32), [100, LARGE_ROWS - 101, 1])[:, None],
    ),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", LARGE_CASES)
def test_large_matrices_load_in_tiles(name: str, form: int, host: NodeHost, tmp_path: Path) -> None:
    weight, want = LARGE_CASES[name]
    (tmp_path / "model").write_bytes(b"before" + LARGE.astype(np.float16).tobytes())
    data = loaded(host, weight, form, {"model": tmp_path / "model"})
    np.testing.assert_array_equal(values(data, form, weight), want)


def test_no_file_is_read_whole(host: NodeHost, tmp_path: Path) -> None:
    """Not even if all of it is needed at once."""
    n = READ_BYTES // 4 + 1000
    (tmp_path / "model").write_bytes(np.arange(n, dtype=np.float32).tobytes())
    ends = LoadOp("pick", (n, n - 1, 0))
    weight = Weight(name="w", type="f32", shape=(2,), parts=(Part("model", 0, 4 * n),), load_ops=(ends,))
    data = loaded(host, weight, FORM_F32, {"model": tmp_path / "model"})
    assert np.frombuffer(data, np.float32).tolist() == [n - 1, 0]
    assert host.counters()["mostRead"] == READ_BYTES


@pytest.mark.parametrize("type_name", ["q8_0", "q5_0"])
def test_blocks_are_copied_unchanged(type_name: str, host: NodeHost, tmp_path: Path) -> None:
    """From one inline part or several parts in files; rows of blocks are never decoded."""
    raw = encode(type_name, LARGE[:96, :512].copy()).reshape(96, -1)
    (tmp_path / "model").write_bytes(raw[48:].tobytes())
    parts = (inline_part(raw[:48].tobytes()), Part("model", 0, raw[48:].nbytes))
    ops = (LoadOp("permute_rows", (4, 24)), LoadOp("pick", (96, 95, 3, 3, *range(40))))
    shape = (43, 512)
    weight = Weight(name="w", type=type_name, shape=shape, parts=parts, load_ops=ops)
    moved = raw.reshape(4, 2, 12, -1).swapaxes(1, 2).reshape(96, -1)[[95, 3, 3, *range(40)]]
    assert loaded(host, weight, FORM_ROWS, {"model": tmp_path / "model"}) == moved.tobytes()


# Load ops on a vector, and their result for 0, 1, 2, ...
VECTORS: dict[str, tuple[Sequence[LoadOp], list[float]]] = {
    "permute_rows": ([LoadOp("permute_rows", (2, 4))], [0, 2, 1, 3, 4, 6, 5, 7]),
    "rows": ([LoadOp("rows", (5, 3, 8))], [5, 6, 7]),
    "rows, add": ([LoadOp("rows", (6, 2, 8)), LoadOp("add", (1.0,))], [7, 8]),
    "rows, neg_exp": (
        [LoadOp("rows", (0, 2, 8)), LoadOp("neg_exp")],
        [-1.0, float(np.float32(-np.e))],
    ),
    "transpose": ([LoadOp("transpose", (4, 2))], [0, 2, 4, 6, 1, 3, 5, 7]),
    "transpose of a stack": ([LoadOp("transpose", (2, 2))], [0, 2, 1, 3, 4, 6, 5, 7]),
    "pick": ([LoadOp("pick", (8, 7, 0))], [7, 0]),
    "pick of pairs": ([LoadOp("pick", (4, 3, 0))], [6, 7, 0, 1]),
}


@pytest.mark.parametrize("name", VECTORS)
def test_vectors(name: str, host: NodeHost) -> None:
    ops, want = VECTORS[name]
    part = inline_part(np.arange(8, dtype=np.float32).tobytes())
    weight = Weight(name="w", type="f32", shape=(len(want),), parts=(part,), load_ops=tuple(ops))
    assert np.frombuffer(loaded(host, weight, FORM_F32, {}), np.float32).tolist() == want


def cut_short(path: Path) -> Weight:
    weight = CASES["plain"].weight(path)
    path.write_bytes(path.read_bytes()[:-1])
    return weight


def too_large(path: Path) -> Weight:
    path.write_bytes((STORED * np.float32(1e6)).tobytes())
    cast = (LoadOp("cast", ("f32",)),)
    part = Part("model", 0, STORED.nbytes)
    return Weight(name="w", type="f16", shape=(ROWS, COLS), parts=(part,), load_ops=cast)


def elsewhere(path: Path) -> Weight:
    path.touch()
    part = Part("other", 0, STORED.nbytes)
    return Weight(name="w", type="f32", shape=(ROWS, COLS), parts=(part,))


REFUSED = {
    "cut short": (cut_short, BackendError, "has 23039 bytes; bytes 0 to 23040 were requested"),
    "too large": (too_large, ModelFormatError, r"w: values up to \d+.* overflow its type; convert to bf16"),
    "of no source": (elsewhere, BackendError, "there is no source 'other'"),
}


@pytest.mark.faults
@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str, host: NodeHost, tmp_path: Path) -> None:
    """A refused weight leaves no trace: it loads on the next request."""
    make, error, message = REFUSED[name]
    weight, whole = make(tmp_path / "model"), CASES["plain"]

    async def load() -> None:
        backend = WasmBackend(host)
        await backend.open(OpenSpec(adapter="wasm", threads=1))
        backend._weights.add([weight], {"model": tmp_path / "model"})
        backend._weights.record(weight, FORM_PANELS)
        with pytest.raises(CamelidError, match=message) as told:
            await backend._load_weights()
        assert type(told.value) is error and host.memory() == {}
        good = replace(whole.weight(tmp_path / "good"), parts=(Part("good", 0, STORED.nbytes),))
        backend._weights.sources["good"] = tmp_path / "good"
        backend._weights.record(good, FORM_PANELS)
        await backend._load_weights()
        assert host.memory() == {"weight/w/panels": STORED.nbytes}
        await backend.close()

    asyncio.run(load())
