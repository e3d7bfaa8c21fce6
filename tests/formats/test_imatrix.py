"""Importance matrices: both forms, round trips, and hostile files."""

from __future__ import annotations

import struct
from array import array
from collections.abc import Callable
from pathlib import Path

import gguf
import numpy as np
import pytest

from camelid.errors import ModelFormatError
from camelid.formats.imatrix import Imatrix, Sums, read_imatrix, write_imatrix

NAME = "blk.0.ffn_down.weight"


def legacy(entries: list[tuple[bytes, int, list[float]]], tail: bytes = b"") -> bytes:
    """The binary form: entries of (name, calls, means times calls)."""
    raw = struct.pack("<i", len(entries))
    for name, calls, values in entries:
        raw += struct.pack("<i", len(name)) + name + struct.pack("<ii", calls, len(values))
        raw += struct.pack(f"<{len(values)}f", *values)
    return raw + tail


TAIL = struct.pack("<ii", 7, 5) + b"a.txt"


def test_the_older_form(tmp_path: Path) -> None:
    (tmp_path / "m.dat").write_bytes(legacy([(b"a.weight", 2, [2, 4, 6]), (b"b.weight", 0, [5.0])], TAIL))
    read = read_imatrix(tmp_path / "m.dat")
    assert list(read.means("a.weight")) == [1, 2, 3]
    assert list(read.means("b.weight")) == [1]  # never used
    assert (read.datasets, read.chunks) == (("a.txt",), 7)
    (tmp_path / "m.dat").write_bytes(legacy([(b"a.weight", 1, [3])]))
    assert read_imatrix(tmp_path / "m.dat").chunks == 0  # early files end here


def test_what_is_written_is_read(tmp_path: Path) -> None:
    sums = {
        NAME: Sums(array("f", [2, 4, 9, 0]), array("f", [2, 0])),
        "a.weight": Sums(array("f", [1, 3]), array("f", [4])),
    }
    write_imatrix(tmp_path / "m.gguf", sums, datasets=["x.txt"], chunks=3, chunk_size=512)
    read = read_imatrix(tmp_path / "m.gguf")
    assert list(read.means(NAME)) == [1, 2, 1, 1]
    assert list(read.means("a.weight")) == [0.25, 0.75]
    assert (read.datasets, read.chunks) == (("x.txt",), 3)
    fields = gguf.GGUFReader(tmp_path / "m.gguf").fields
    assert fields["imatrix.chunk_size"].contents() == 512


def gguf_file(path: Path, tensors: dict[str, np.ndarray], kind: str = "imatrix") -> None:
    writer = gguf.GGUFWriter(path, "none")
    writer.add_type(kind)
    writer.add_array("imatrix.datasets", ["x.txt"])
    for name, values in tensors.items():
        writer.add_tensor(name, values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def pair(sums: list[list[float]], counts: list[list[float]], dtype: str = "f4") -> dict[str, np.ndarray]:
    return {f"{NAME}.in_sum2": np.array(sums, dtype), f"{NAME}.counts": np.array(counts, np.float32)}


HOSTILE_GGUF = {
    "a model": (lambda path: gguf_file(path, pair([[1, 2]], [[1]]), "model"), "general.type is 'model'"),
    "negative counts": (lambda path: gguf_file(path, pair([[1, 2]], [[-1]])), f"'{NAME}': sums contain -1"),
    "a part of a count": (lambda path: gguf_file(path, pair([[1, 2]], [[1e-30]])), "a count is 1"),
    "NaN": (lambda path: gguf_file(path, pair([[1, np.nan]], [[1]])), f"'{NAME}': sums contain nan"),
    "infinite": (lambda path: gguf_file(path, pair([[1, np.inf]], [[1]])), f"'{NAME}': sums contain inf"),
    "negative": (lambda path: gguf_file(path, pair([[1, -2]], [[1]])), f"'{NAME}': sums contain -2"),
    "counts of other experts": (
        lambda path: gguf_file(path, pair([[1], [2]], [[1], [1], [1]])),
        "do not fit",
    ),
    "halves": (lambda path: gguf_file(path, pair([[1, 2]], [[1]], "f2")), "sums f16 .* do not fit"),
    "no counts": (
        lambda path: gguf_file(path, {f"{NAME}.in_sum2": np.ones((1, 2), np.float32)}),
        "has no .*counts",
    ),
    "counts alone": (
        lambda path: gguf_file(path, {f"{NAME}.counts": np.ones((1, 1), np.float32)}),
        "expected pairs",
    ),
    "another tensor": (
        lambda path: gguf_file(path, {**pair([[1]], [[1]]), "x": np.ones(4, np.float32)}),
        "the tensor 'x'",
    ),
}
HOSTILE_LEGACY = {
    "empty": b"",
    "no entries": struct.pack("<i", 0),
    "negative entries": struct.pack("<i", -5),
    "absurd entries": struct.pack("<i", 2**31 - 1),
    "absurd name": struct.pack("<ii", 1, 2**30) + b"x" * 40,
    "empty name": struct.pack("<iiii", 1, 0, 1, 1),
    "absurd values": legacy([(b"a", 1, [])])[:-4] + struct.pack("<i", 2**31 - 1),
    "negative values": legacy([(b"a", 1, [])])[:-4] + struct.pack("<i", -1),
    "no values": legacy([(b"a", 1, [])]),
    "negative calls": legacy([(b"a", -1, [1])]),
    "a name twice": legacy([(b"a", 1, [1]), (b"a", 1, [1])]),
    "not UTF-8": legacy([(b"\xff\xfe", 1, [1])]),
    "NaN": legacy([(b"a", 1, [float("nan")])]),
    "negative": legacy([(b"a", 1, [1, -1])]),
    "noise": bytes(range(256)) * 8,
}


@pytest.mark.parametrize("what", HOSTILE_GGUF)
def test_hostile_files_of_the_gguf_form(what: str, tmp_path: Path) -> None:
    make: Callable[[Path], None]
    make, said = HOSTILE_GGUF[what]
    make(tmp_path / "m.gguf")
    with pytest.raises(ModelFormatError, match=said):
        read_imatrix(tmp_path / "m.gguf")


@pytest.mark.parametrize("what", HOSTILE_LEGACY)
def test_hostile_files_of_the_older_form(what: str, tmp_path: Path) -> None:
    (tmp_path / "m.dat").write_bytes(HOSTILE_LEGACY[what])
    with pytest.raises(ModelFormatError, match=r"m\.dat: "):
        read_imatrix(tmp_path / "m.dat")


def test_truncated_files(tmp_path: Path) -> None:
    """Every cut is an error, except behind whole entries: early files end there."""
    whole, path = legacy([(b"a.weight", 1, [1, 2]), (b"b.weight", 1, [3])], TAIL), tmp_path / "m.dat"
    for n in range(len(whole)):
        path.write_bytes(whole[:n])
        if n in (len(whole) - len(TAIL), len(whole) - len(TAIL) + 4):
            assert len(read_imatrix(path).entries) == 2
        else:
            with pytest.raises(ModelFormatError):
                read_imatrix(path)
    gguf_file(tmp_path / "m.gguf", pair([[1, 2]], [[1]]))
    raw = (tmp_path / "m.gguf").read_bytes()
    for n in range(0, len(raw) - 32, 7):
        path.write_bytes(raw[:n])
        with pytest.raises(ModelFormatError):
            read_imatrix(path)


def test_a_file_that_shrinks_later(tmp_path: Path) -> None:
    path = tmp_path / "m.dat"
    path.write_bytes(legacy([(b"a.weight", 1, [1, 2])]))
    read: Imatrix = read_imatrix(path)
    path.write_bytes(path.read_bytes()[:-4])
    with pytest.raises(ModelFormatError, match="4 bytes early"):
        read.means("a.weight")
