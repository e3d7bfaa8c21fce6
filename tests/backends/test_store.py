"""The reference's weights: tiles by shape alone, rows on demand, memory bounded by cache and tile."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.golden.quant_oracle import oracle_decode, random_blocks

from camelid.backends.reference import store as store_module
from camelid.backends.reference.store import WeightStore
from camelid.plan.weights import Part, Weight, cut_rows

ROWS, COLS = 20_000, 256  # 20 tiles, the last one short; 41 MB in float64, 5 MB in the file
MIB = 1 << 20


@pytest.fixture
def weight(tmp_path: Path) -> Weight:
    """A q8_0 matrix in a file, after some other bytes."""
    raw = random_blocks("q8_0", 11, n=ROWS * COLS // 32, finite=True)
    (tmp_path / "weights").write_bytes(bytes(100) + raw.tobytes())
    return Weight(name="w", type="q8_0", shape=(ROWS, COLS), parts=(Part("file", 100, raw.size),))


@pytest.fixture
def values(weight: Weight, tmp_path: Path) -> NDArray[np.float64]:
    raw = np.fromfile(tmp_path / "weights", np.uint8, offset=100).reshape(-1, 34)
    return oracle_decode("q8_0", raw).astype(np.float64).reshape(ROWS, COLS)


@pytest.fixture
def opened(tmp_path: Path) -> Callable[[Weight], WeightStore]:
    def open_store(weight: Weight) -> WeightStore:
        store = WeightStore()
        store.add([weight], {"file": str(tmp_path / "weights")})
        return store

    return open_store


Open = Callable[[Weight], WeightStore]
X = np.random.default_rng(12).standard_normal((5, COLS))  # [T, in]


def peak_of(work: Callable[[], object]) -> int:
    tracemalloc.start()
    work()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return peak


def test_products_and_rows_equal_the_whole_matrixs(
    weight: Weight, opened: Open, values: NDArray[np.float64]
) -> None:
    store = opened(weight)
    np.testing.assert_allclose(store.multiply(weight, X), X @ values.T, rtol=1e-11, atol=1e-9)
    picked = [ROWS - 1, 0, 7, 7, 1024]
    np.testing.assert_array_equal(store.rows(weight, picked), values[picked])
    np.testing.assert_array_equal(store.matrix(weight), values)
    assert store.rows(weight, []).shape == (0, COLS)
    assert store.multiply(weight, X[:0]).shape == (0, ROWS)


def test_bits_depend_on_neither_batch_nor_cache(
    weight: Weight, opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = opened(weight)
    together, again = store.multiply(weight, X), store.multiply(weight, X)
    monkeypatch.setattr(store_module, "CACHE_BYTES", 0)
    uncached = opened(weight)
    alone = np.concatenate([uncached.multiply(weight, row[None]) for row in X])
    assert together.tobytes() == again.tobytes() == alone.tobytes()


def test_an_expert_is_a_separate_matrix(weight: Weight, opened: Open) -> None:
    stack = Weight(name="s", type="q8_0", shape=(4, ROWS // 4, COLS), parts=weight.parts)
    store = opened(stack)
    for expert in range(4):
        alone = cut_rows(weight, f"cut{expert}", expert * (ROWS // 4), ROWS // 4)
        want = store.multiply(alone, X)
        assert store.multiply_expert(stack, expert, X).tobytes() == want.tobytes()
        assert store.multiply_expert(stack, expert, X).tobytes() == want.tobytes()  # from the cache


def test_selected_rows_are_in_the_requested_order(
    weight: Weight, opened: Open, values: NDArray[np.float64]
) -> None:
    numbers = [ROWS - 1, 0, 7, 7, *range(1500, 0, -1)]  # more than one tile
    picked = replace(weight, name="p", shape=(len(numbers), COLS)).then("pick", ROWS, *numbers)
    np.testing.assert_array_equal(opened(picked).matrix(picked), values[numbers])
    np.testing.assert_array_equal(opened(picked).rows(picked, [3, 1]), values[[7, 0]])


def test_memory_is_bounded_by_cache_and_tile(
    weight: Weight, opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_module, "CACHE_BYTES", 8 * MIB)
    store = opened(weight)
    assert peak_of(lambda: store.rows(weight, [5] * 100)) < MIB
    assert peak_of(lambda: store.multiply(weight, X)) < 6 * MIB + 5 * ROWS * 8  # too large for the cache
    small = cut_rows(weight, "cut", 0, 4096)  # 8 MiB
    assert 8 * MIB < peak_of(lambda: store.multiply(small, X)) < 8 * MIB + 6 * MIB + 5 * 4096 * 8
    assert peak_of(lambda: store.multiply(small, X)) < 5 * 4096 * 8 + MIB


def test_a_full_cache_keeps_its_tiles(weight: Weight, opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    decoded: list[int] = []
    load_rows = store_module.load_rows

    def counted(weight: Weight, read: object, start: int, n: int) -> NDArray[np.float32]:
        decoded.append(start)
        return load_rows(weight, read, start, n)  # pyright: ignore[reportArgumentType]

    monkeypatch.setattr(store_module, "load_rows", counted)
    monkeypatch.setattr(store_module, "CACHE_BYTES", 8 * MIB)
    first, second = (cut_rows(weight, f"cut{start}", start, 2048) for start in (0, 4096))  # 4 MiB each
    store = opened(weight)
    for one in (first, weight, second) * 2:
        store.multiply(one, X)
    tiles = [*range(0, ROWS, 1024)]  # all tiles, which do not fit beside the first
    assert decoded == [0, 1024, *tiles, 0, 1024, *tiles]


def test_a_reloaded_name_is_decoded_again(weight: Weight, opened: Open, tmp_path: Path) -> None:
    """First another shape, then another file of the same shape, as after a change of the model."""
    store = opened(cut_rows(weight, "w", 0, 1000))
    store.multiply(store.weights["w"], X)
    store.add([weight], {"file": str(tmp_path / "weights")})
    want = store.multiply(weight, X)
    (tmp_path / "zeros").write_bytes(bytes((tmp_path / "weights").stat().st_size))
    store.add([weight], {"file": str(tmp_path / "zeros")})
    assert store.multiply(weight, X).tobytes() == bytes(want.nbytes)
    assert want.any(axis=0).all() and store.multiply(weight, X[:0]).shape == (0, ROWS)
    store.add([weight], {"file": str(tmp_path / "weights")})
    assert store.multiply(weight, X).tobytes() == want.tobytes()
