"""The safetensors parser on well-formed files, written and read by the safetensors package."""

from __future__ import annotations

import json
import math
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors
from safetensors.numpy import load_file, save, save_file

from camelid.formats.safetensors import (
    DTYPES,
    SafeTensor,
    Safetensors,
    open_safetensors,
    read_safetensors,
)

pytestmark = pytest.mark.conformance

NUMPY_TYPES = {
    "bool": np.bool_, "u8": np.uint8, "i8": np.int8, "i16": np.int16, "u16": np.uint16, "f16": np.float16,
    "i32": np.int32, "u32": np.uint32, "f32": np.float32, "f64": np.float64, "i64": np.int64,
    "u64": np.uint64, "c64": np.complex64,
}  # fmt: skip
SHAPES = [(), (0,), (1,), (7,), (3, 0, 2), (2, 3), (1, 2, 3, 1, 5)]


def random_tensors(seed: int) -> dict[str, np.ndarray[Any, Any]]:
    """Every NumPy type in every shape, with unordered names and sizes that leave odd offsets."""
    rng = np.random.default_rng(seed)
    made: dict[str, np.ndarray[Any, Any]] = {}
    for name, kind in NUMPY_TYPES.items():
        for i, shape in enumerate(SHAPES):
            made[f"{rng.integers(1000)}.{name}.{i}"] = rng.integers(0, 100, shape).astype(kind)
    return made


def file_of(header: Any, data: bytes = b"") -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def asks_of(data: bytes) -> tuple[Safetensors, list[tuple[int, int]]]:
    """Parses `data` and records each requested range."""
    steps, asks = read_safetensors(len(data)), []
    try:
        ask = next(steps)
        while True:
            asks.append(ask)
            ask = steps.send(data[ask[0] : sum(ask)])
    except StopIteration as stop:
        return stop.value, asks


@pytest.mark.parametrize("seed", range(3))
def test_tensors_of_every_type_and_shape(seed: int, tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    save_file(random_tensors(seed), path, metadata={"format": "np", "über": "🦙"})
    want, got, data = load_file(path), open_safetensors(path), path.read_bytes()
    assert got.metadata == {"format": "np", "über": "🦙"}
    assert (got.path, got.file_size) == (str(path), len(data))
    assert got.tensors.keys() == want.keys()
    for name, tensor in got.tensors.items():
        assert tensor.name == name
        assert tensor.shape == want[name].shape
        assert NUMPY_TYPES[tensor.type] == want[name].dtype
        assert data[tensor.offset : tensor.offset + tensor.n_bytes] == want[name].tobytes()


@pytest.mark.parametrize("dtype", DTYPES)
def test_sizes_of_dtypes_that_numpy_lacks(dtype: str) -> None:
    """The package accepts exactly our bytes for 2 x 4 values, and refuses one more."""
    n = math.prod((2, 4)) * DTYPES[dtype] // 8
    info = {"dtype": dtype, "shape": [2, 4], "data_offsets": [0, n]}
    data = file_of({"a": info}, bytes(n))
    assert safetensors.deserialize(data)[0][1]["dtype"] == dtype
    tensor = asks_of(data)[0].tensors["a"]
    assert tensor == SafeTensor("a", dtype.lower(), (2, 4), len(data) - n, n)
    info["data_offsets"] = [0, n + 1]
    with pytest.raises(safetensors.SafetensorError):
        safetensors.deserialize(file_of({"a": info}, bytes(n + 1)))


def test_unaligned_data_and_a_padded_header() -> None:
    """A header of odd length, padded with blanks; tensors listed out of data order."""
    infos = {
        "later": {"dtype": "F32", "shape": [2], "data_offsets": [3, 11]},
        "first": {"dtype": "I8", "shape": [3], "data_offsets": [0, 3]},
        "none": {"dtype": "F16", "shape": [0, 9], "data_offsets": [3, 3]},
    }
    text = json.dumps(infos).encode()
    text += b" " * (3 - len(text) % 2)
    data = file_of(text, bytes(range(11)))
    got = asks_of(data)[0]
    assert list(got.tensors) == ["later", "first", "none"]
    assert {name: dict(info)["data"] for name, info in safetensors.deserialize(data)} == {
        name: data[tensor.offset : tensor.offset + tensor.n_bytes] for name, tensor in got.tensors.items()
    }
    assert got.tensors["later"].offset % 2 == 0 and len(text) % 2 == 1


@pytest.mark.parametrize("header", [b"{}", b"{}      ", b'{"__metadata__":null}', b'{"__metadata__":{}}'])
def test_files_without_tensors(header: bytes) -> None:
    got = asks_of(file_of(header))[0]
    assert (got.metadata, got.tensors) == ({}, {})
    assert safetensors.deserialize(file_of(header)) == []


def test_a_large_header_is_two_reads() -> None:
    data = save({f"blk.{i}.weight": np.zeros(1, np.float32) for i in range(5000)}) + b""
    got, asks = asks_of(data)
    assert len(got.tensors) == 5000
    n = 8 + int.from_bytes(data[:8], "little")
    assert n > 2 << 16
    assert asks[0] == (0, 64 << 10)
    assert len(asks) == 2
    assert sum(asks[1]) == n, "data bytes were read although the header exceeds the first read"
