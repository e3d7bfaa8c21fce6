"""The layout of state on a WebGPU device, against its definition."""

from __future__ import annotations

import struct

import pytest

from camelid.backends.base import PoolSize
from camelid.backends.webgpu.limits import DEFAULTS, check_buffers
from camelid.backends.webgpu.lower import allocate_section
from camelid.backends.webgpu.state_buffers import (
    device_rows,
    file_rows,
    layer_binding,
    regions,
    row_words,
    table_at,
    tables_bytes,
)
from camelid.errors import OutOfMemoryError
from camelid.plan.plan import StateSpec

QUANT_BYTES = {"q8_0": 32, "q4_0": 16}


def blocks(kv_type: str, n: int) -> list[tuple[bytes, bytes]]:
    """(scale, quants) of n blocks, every byte different from its neighbours."""
    size = QUANT_BYTES[kv_type]
    return [
        (struct.pack("<H", 7 * i + 300), bytes((i * size + j) % 251 for j in range(size))) for i in range(n)
    ]


@pytest.mark.parametrize("kv_type", QUANT_BYTES)
@pytest.mark.parametrize(("n_blocks", "fill"), [(1, 2), (2, 0), (3, 2), (16, 0)])
def test_block_rows_store_quants_then_scales_then_zero_padding(
    kv_type: str, n_blocks: int, fill: int
) -> None:
    rows = [blocks(kv_type, 3 * n_blocks)[i : i + n_blocks] for i in range(0, 3 * n_blocks, n_blocks)]
    in_file = b"".join(scale + quants for row in rows for scale, quants in row)
    ordered = [(*(q for _, q in row), *(s for s, _ in row), bytes(fill)) for row in rows]
    on_device = b"".join(piece for row in ordered for piece in row)
    assert device_rows(kv_type, 32 * n_blocks, in_file) == on_device
    assert file_rows(kv_type, 32 * n_blocks, on_device) == in_file
    assert 3 * 4 * row_words(kv_type, 32 * n_blocks) == len(on_device)


@pytest.mark.parametrize(("kv_type", "words"), [("f32", 12), ("f16", 6)])
def test_plain_rows_equal_the_files(kv_type: str, words: int) -> None:
    data = bytes(range(4 * words))
    assert device_rows(kv_type, 12, data) == file_rows(kv_type, 12, data) == data
    assert row_words(kv_type, 12) == words


def spec(name: str, kv_type: str = "f32", kind: str = "paged") -> StateSpec:
    return StateSpec(name, kind, (2, 5), (("k", 96), ("v", 32)), 16, kv_type)


@pytest.mark.parametrize(("kv_type", "k", "v"), [("f32", 384, 128), ("q8_0", 104, 36), ("q4_0", 56, 20)])
def test_a_layers_tensors_are_adjacent_if_one_binding_fits(kv_type: str, k: int, v: int) -> None:
    places = regions(spec("kv", kv_type), 5, 7)
    assert [(p.buffer, p.n_bytes) for p in places.values()] == [
        ("state/kv.5", 7 * 16 * k),
        ("state/kv.5", 7 * 16 * v),
    ]
    assert places["k"].offset == 0
    assert places["k"].n_bytes <= places["v"].offset < places["k"].n_bytes + 256
    assert places["v"].offset % DEFAULTS["minStorageBufferOffsetAlignment"] == 0
    whole = layer_binding(spec("kv", kv_type), 5, 7)
    assert whole == ("state/kv.5", 0, places["v"].offset + places["v"].n_bytes)


def test_page_tables_follow_each_other() -> None:
    states = (spec("kv"), spec("kv_tail"), StateSpec("tokens", "ring", (), (("id", 1),), 128))
    pools = {"kv": PoolSize(9, 3, 4), "kv_tail": PoolSize(9, 3, 5), "tokens": PoolSize(4)}
    assert [table_at(states, pools, s.name) for s in states] == [0, 12, 27]
    assert tables_bytes(states, pools) == 4 * 27


def test_a_layer_may_exceed_one_binding() -> None:
    """Keys and values are bound separately: 128 MiB each, 256 MiB together, by WebGPU's default limits."""
    state = StateSpec("kv", "paged", (0,), (("k", 1024), ("v", 1024)), 16)
    fits = allocate_section([state], {"kv": PoolSize(2048, 1, 1)}).json()
    check_buffers(fits, DEFAULTS)
    with pytest.raises(OutOfMemoryError, match=r"state/kv\.0 binds"):
        check_buffers(allocate_section([state], {"kv": PoolSize(2049, 1, 1)}).json(), DEFAULTS)
    with pytest.raises(OutOfMemoryError, match=r"state/kv\.0 needs"):
        check_buffers(fits, DEFAULTS | {"maxBufferSize": 255 << 20})


def test_a_tail_is_bound_whole() -> None:
    """Attention reads both its tensors through one binding, the last free one."""
    tail = StateSpec("kv_tail", "window", (0,), (("k", 1024), ("v", 1024)), 16, "f16", 320)
    check_buffers(allocate_section([tail], {"kv_tail": PoolSize(2048, 1, 1)}).json(), DEFAULTS)
    with pytest.raises(OutOfMemoryError, match=r"state/kv_tail\.0 binds"):
        check_buffers(allocate_section([tail], {"kv_tail": PoolSize(2049, 1, 1)}).json(), DEFAULTS)
