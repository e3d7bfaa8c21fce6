"""Keys and values of every kv_type on the reference: stored with the gguf package's bytes, attended to as by
NumPy in float64.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from tests.support.kv_oracle import attend, border, held, stored
from tests.support.parity.case_tools import vector, weight
from tests.support.parity.compare import nmse

from camelid.backends.common.codecs import decode
from camelid.backends.common.op_runner import OpCase, Quantized, run_case
from camelid.backends.reference.backend import ReferenceBackend
from camelid.backends.reference.stored import store_rows
from camelid.errors import BackendError
from camelid.plan.plan import StateSpec
from camelid.plan.tiers import BATCH, TAIL, TAIL_WINDOW, first_tail_row

ALLOWED = 1e-10  # NMSE; results are float32
NO_TAIL = 1 << 31  # a border after all keys
STORES = [("f32", False), ("f16", False), ("q8_0", False), ("q4_0", False), ("q8_0", True), ("q4_0", True)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """One attention op over `n_keys` rows, its queries at `positions`.

    `v_dim` 0: the first half of each key is the value.
    """

    positions: tuple[int, ...]
    n_keys: int = 700
    heads: tuple[int, int] = (4, 2)  # of queries, of keys
    dim: int = 32
    v_dim: int = 32
    mask: str = "causal"
    window: int = 0
    softcap: float = 0.0
    first_kept: int = 0
    has_sinks: bool = False
    bias_rows: int = 0
    scale: float = 0.1


SHAPES = {
    "grouped heads": Shape(positions=(0, 1, 254, 255, 318, 319, 320, 699)),
    "softcap": Shape(positions=(400, 401), softcap=5.0),
    "sinks": Shape(positions=(0, 500), has_sinks=True),
    "softcap, sinks and rows given up": Shape(positions=(600,), softcap=3.0, has_sinks=True, first_kept=97),
    "rows given up into the tail": Shape(positions=(300, 310), first_kept=290),
    "a bias by distance": Shape(positions=(10, 399), bias_rows=40),
    "a block over two heads": Shape(positions=(5, 444), heads=(4, 2), dim=80, v_dim=80),
    "blocks with several heads": Shape(positions=(5, 444), heads=(4, 4), dim=8, v_dim=8),
    "latents": Shape(positions=(8, 620), heads=(6, 1), dim=96, v_dim=0),
}
WINDOWED = {
    "a window": Shape(positions=(3, 63, 64, 640), window=50),
    "a window with sinks": Shape(positions=(639, 640), window=129, has_sinks=True, first_kept=496),
    "rows held before": Shape(positions=(333, 0), mask="held"),
}
PAIRS = [(name, *store) for name in SHAPES for store in STORES]
PAIRS += [(name, *store) for name in WINDOWED for store in STORES if not store[1]]


def rows(seed: int, *shape: int) -> Any:
    """Float32 with outliers: some blocks have a wide range."""
    rng = np.random.default_rng(seed)
    return (rng.standard_normal(shape) * np.exp(rng.standard_normal(shape))).astype(np.float32)


def case_of(shape: Shape, kv_type: str, has_tail: bool) -> OpCase:
    (n_heads, n_kv_heads), t = shape.heads, len(shape.positions)
    v_dim = shape.v_dim or shape.dim // 2
    weights = {"sinks": vector(5, n_heads)} if shape.has_sinks else {}
    weights |= {"bias": weight("f32", 6, shape.bias_rows, n_heads)} if shape.bias_rows else {}
    return OpCase(
        op="attention",
        views={"q": rows(1, t, n_heads * shape.dim), "y": np.zeros((t, n_heads * v_dim), np.float32)},
        weights=weights,
        attrs={
            "n_heads": n_heads, "n_kv_heads": n_kv_heads, "scale": shape.scale, "mask": shape.mask,
            "window": shape.window, "softcap": shape.softcap,
        },
        keys=rows(2, shape.n_keys, n_kv_heads * shape.dim),
        values=rows(3, shape.n_keys, n_kv_heads * v_dim) if shape.v_dim else None,
        positions=shape.positions,
        first_kept=shape.first_kept,
        kv_type=kv_type,
        has_tail=has_tail,
    )  # fmt: skip


def expected(case: OpCase, borders: Sequence[int] = ()) -> Any:  # [T, H*V]
    """`borders` separate the tiers, one per row; the default is the definition's."""
    stores = [_Read(case, tensor) for tensor in (case.keys, case.values) if tensor is not None]
    at = borders or [border(row) if case.has_tail else NO_TAIL for row in case.positions]
    return np.stack([_expected_row(case, stores, t, at[t]) for t in range(len(at))])


class _Read:
    """A tensor's rows in each tier, both [n, cols]."""

    def __init__(self, case: OpCase, tensor: Any) -> None:
        self.store, self.tail = held(case.kv_type, tensor), held("f16", tensor)

    def __call__(self, keys: Any, at: int, n_kv_heads: int) -> Any:  # [keys, K, D]
        read = np.where(keys[:, None] >= at, self.tail[keys], self.store[keys])
        return read.reshape(len(keys), n_kv_heads, -1)


def _expected_row(case: OpCase, stores: Sequence[_Read], t: int, at: int) -> Any:
    n_heads, n_kv_heads = (int(case.attrs[name]) for name in ("n_heads", "n_kv_heads"))
    floats = {name: _decoded(w) for name, w in case.weights.items()}
    keys = _seen(case, case.positions[t])
    k, v = (stores[i](keys, at, n_kv_heads) for i in (0, -1))
    bias = floats.get("bias")
    return attend(
        case.views["q"][t].reshape(n_heads, -1),
        k,
        v[..., : case.views["y"].shape[1] // n_heads],
        scale=float(case.attrs["scale"]),
        softcap=float(case.attrs["softcap"]),
        sinks=floats.get("sinks"),
        bias=None if bias is None else bias[np.minimum(case.positions[t] - keys, len(bias) - 1)],
    )


def _decoded(weight: Quantized) -> Any:
    return decode(weight.type, weight.raw, int(np.prod(weight.shape))).reshape(weight.shape)


def _seen(case: OpCase, row: int) -> Any:
    """The keys that a row attends to."""
    if case.attrs["mask"] == "held":
        return np.arange(case.first_kept, case.positions[0])
    window = int(case.attrs["window"])
    return np.arange(max(case.first_kept, row - window + 1 if window else 0), row + 1)


def run(case: OpCase) -> Any:
    return asyncio.run(run_case(ReferenceBackend(), case)).views["y"]


@pytest.mark.parametrize(("name", "kv_type", "has_tail"), PAIRS)
def test_attention_reads_the_gguf_packages_values(name: str, kv_type: str, has_tail: bool) -> None:
    shape = {**SHAPES, **WINDOWED}[name]
    case = case_of(shape, kv_type, has_tail)
    assert max(map(nmse, run(case), expected(case))) <= ALLOWED


@pytest.mark.parametrize("kv_type", ["q8_0", "q4_0"])
def test_every_query_reads_each_key_from_its_tier(kv_type: str) -> None:
    """One row in the wrong tier shows: from the first query with a border on, the test would fail."""
    shape = Shape(positions=tuple(range(701)), n_keys=701, heads=(1, 1), scale=0.001)
    case = case_of(shape, kv_type, True)
    want = expected(case)
    assert max(map(nmse, run(case), want)) <= ALLOWED
    borders = [border(row) for row in shape.positions]
    for shift in (-1, 1):
        moved = expected(case, [at + shift if at else 0 for at in borders])
        assert min(nmse(moved[t], want[t]) for t, at in enumerate(borders) if at) > 5 * ALLOWED


def test_the_border_equals_the_definitions() -> None:
    assert [first_tail_row(row) for row in range(701)] == [border(row) for row in range(701)]


def test_the_tail_stays_within_its_window() -> None:
    for row in range(3000):
        n_recent = row + 1 - first_tail_row(row)
        assert min(row + 1, TAIL) <= n_recent < TAIL_WINDOW == TAIL + BATCH


def test_the_tail_is_more_precise() -> None:
    """The result is closer to float32 than the store alone, and differs from pure float16."""
    shape = Shape(positions=(640,))
    exact = run(case_of(shape, "f32", False))
    alone, tiered, half = (
        nmse(run(case_of(shape, *store)), exact)
        for store in (("q4_0", False), ("q4_0", True), ("f16", False))
    )
    assert half < tiered / 100 < alone / 100


@pytest.mark.parametrize(("kv_type", "has_tail"), STORES)
def test_a_batch_changes_no_bit_of_a_row(kv_type: str, has_tail: bool) -> None:
    shape = Shape(positions=tuple(range(310, 330)))
    case = case_of(shape, kv_type, has_tail)
    together = run(case)
    for t, row in enumerate(shape.positions):
        views = {name: view[t : t + 1] for name, view in case.views.items()}
        assert np.array_equal(run(replace(case, views=views, positions=(row,)))[0], together[t])


def write_case(kv_type: str, n: int, *, first: int = 0) -> OpCase:
    views = {"k": rows(7, n, 96), "v": rows(8, n, 64)}
    return OpCase(op="kv_write", views=views, positions=range(first, first + n), kv_type=kv_type)


@pytest.mark.parametrize("kv_type", ["f32", "f16", "q8_0", "q4_0"])
def test_state_equals_the_gguf_packages_bytes(kv_type: str) -> None:
    """By layer, by tensor, by row; read bytes can be written back."""
    case, backend = write_case(kv_type, 32), ReferenceBackend()
    asyncio.run(run_case(backend, case))
    state = StateSpec("kv", "paged", (0,), (("k", 96), ("v", 64)), 16, kv_type)
    for page, unit in enumerate((2, 1)):
        data = asyncio.run(backend.read_state("kv", unit))
        want = [stored(kv_type, case.views[name][16 * page : 16 * page + 16]) for name in ("k", "v")]
        assert data == b"".join(want)
        assert len(data) == state.unit_bytes == 16 * state.row_bytes
        asyncio.run(backend.write_state("kv", 3, data))
        assert asyncio.run(backend.read_state("kv", 3)) == data


@pytest.mark.parametrize("kv_type", ["q8_0", "q4_0"])
def test_many_values_are_rounded_like_the_gguf_package(kv_type: str) -> None:
    """Enough values to show float64 arithmetic, which decides some ties differently."""
    values = rows(12, 20000, 96)
    assert store_rows(kv_type, values.astype(np.float64)).tobytes() == stored(kv_type, values)


@pytest.mark.parametrize("kv_type", ["f16", "q8_0", "q4_0"])
def test_rows_are_quantized_independently(kv_type: str) -> None:
    together = asyncio.run(run_case(ReferenceBackend(), write_case(kv_type, 20, first=5)))
    for name in ("k", "v"):
        want = held(kv_type, write_case(kv_type, 20).views[name])
        assert np.array_equal(together.state[name][5:25], want)
        assert not together.state[name][:5].any(), "unwritten rows changed"


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e30])
@pytest.mark.parametrize("kv_type", ["f16", "q8_0", "q4_0"])
def test_unrepresentable_values_stay_visible(kv_type: str, value: float) -> None:
    """The value reads as not finite, in its own block only."""
    case = write_case(kv_type, 3)
    case.views["k"][1, 40] = value
    with np.errstate(all="ignore"):
        k = asyncio.run(run_case(ReferenceBackend(), case)).state["k"]
    broken = ~np.isfinite(k[:3])
    assert broken[1, 40] and not broken[:, :32].any() and not broken[:, 64:].any()
    assert not broken[[0, 2]].any()


@pytest.mark.parametrize("kv_type", ["f16", "q8_0", "q4_0"])
def test_copies_move_stored_rows(kv_type: str) -> None:
    keys, values = rows(9, 48, 64), rows(10, 48, 32)
    case = OpCase(op="copy", views={}, keys=keys, values=values, copies=[(0, 2, 11)], kv_type=kv_type)
    state = asyncio.run(run_case(ReferenceBackend(), case)).state
    for name, tensor in (("k", keys), ("v", values)):
        want = held(kv_type, tensor)
        want[32:43] = want[:11]
        assert np.array_equal(state[name], want)


@pytest.mark.parametrize("n_more", [-1, 1])
def test_a_unit_of_another_size_is_refused(n_more: int) -> None:
    backend = ReferenceBackend()
    asyncio.run(run_case(backend, write_case("q8_0", 16)))
    data = asyncio.run(backend.read_state("kv", 1))
    with pytest.raises(BackendError, match=f"{len(data) + n_more:,} bytes.*{len(data):,}"):
        asyncio.run(backend.write_state("kv", 1, (data + b"\0")[: len(data) + n_more]))
