"""Importance matrices: mean squared activations by column of each linear map, for quantization.

Two forms of llama.cpp are read: GGUF (tensors NAME.in_sum2 and NAME.counts, keys imatrix.*) and the older
binary form. The GGUF form is written.
"""

from __future__ import annotations

import struct
import sys
from array import array
from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from os import PathLike, fspath
from pathlib import Path
from typing import BinaryIO, NoReturn

from camelid.formats.gguf import MAGIC, open_gguf
from camelid.formats.gguf_header import Gguf, GgufTensor
from camelid.formats.gguf_writer import TensorOut, infer_kinds, write_gguf
from camelid.formats.source import format_error

SUMS, COUNTS = ".in_sum2", ".counts"
MAX_NAME_BYTES = 256
MAX_MATRICES = 1 << 20  # matrices of a stack of experts
I32 = struct.Struct("<i")


@dataclass(frozen=True, slots=True)
class Entry:
    """Importance of one tensor: `n` sums at `offset` of the file, [matrices, columns]; one divisor a
    matrix, or one for all; 0: the matrix was never used."""

    offset: int
    n: int
    counts: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Imatrix:
    """An importance matrix whose numbers stay in its file until they are asked for."""

    path: Path
    entries: Mapping[str, Entry]
    datasets: tuple[str, ...]
    chunks: int

    def means(self, name: str) -> array[float]:
        """Mean squared activations of a tensor, [matrices, columns] in one array; 1 for a matrix never used.

        Raises KeyError for a name without an entry, ModelFormatError if the file has changed.
        """
        entry = self.entries[name]
        with self.path.open("rb") as file:
            sums = _floats(file, entry, str(self.path), name)
        width = entry.n // len(entry.counts)
        for i, value in enumerate(sums):
            count = entry.counts[i // width]
            sums[i] = value / count if count > 0 else 1.0
        return sums


def read_imatrix(path: str | PathLike[str]) -> Imatrix:
    """Reads a file of either form, and checks every number of it.

    Raises ModelFormatError for a malformed file, a number that is negative or not finite, and counts that do
    not fit their sums.
    """
    name = fspath(path)
    try:
        with Path(path).open("rb") as file:
            size = file.seek(0, 2)
            file.seek(0)
            is_gguf = file.read(4) == MAGIC
            file.seek(0)
            read = (
                _read_gguf(Path(path), open_gguf(path)) if is_gguf else _read_legacy(Path(path), file, size)
            )
            for tensor, entry in read.entries.items():
                _floats(file, entry, name, tensor)
    except OSError as error:
        raise format_error(name, f"the file cannot be read: {error.strerror or error}") from error
    return read


def _floats(file: BinaryIO, entry: Entry, path: str, name: str) -> array[float]:
    """The sums of an entry, checked."""
    file.seek(entry.offset)
    raw = file.read(4 * entry.n)
    if len(raw) < 4 * entry.n:
        raise format_error(path, f"{name!r}: the file ends {4 * entry.n - len(raw)} bytes early", tensor=name)
    values = array("f", raw)
    if sys.byteorder == "big":
        values.byteswap()
    _check_numbers(path, name, "sums", values)
    return values


def _check_numbers(path: str, name: str, what: str, values: Sequence[float]) -> None:
    low, high = min(values, default=0.0), max(values, default=0.0)
    # NaN makes a sum NaN, while min and max may pass over it.
    if low < 0 or not isfinite(sum(values)) or not isfinite(high):
        bad = next((x for x in values if not (isfinite(x) and x >= 0)), high)
        message = f"{name!r}: {what} contain {bad}; an importance is a mean of squares, from 0 up"
        raise format_error(path, message, tensor=name, got=bad)


def _read_gguf(path: Path, header: Gguf) -> Imatrix:
    shown = str(path)
    kind = header.get("general.type", str, default="")
    if kind != "imatrix":
        message = (
            f"general.type is {kind!r}, not 'imatrix': is this a model? Expected a file of camelid imatrix"
        )
        raise format_error(shown, message, got=kind)
    entries: dict[str, Entry] = {}
    with path.open("rb") as file:
        for name, sums in header.tensors.items():
            if name.endswith(SUMS):
                own = name.removesuffix(SUMS)
                entries[own] = _entry(file, shown, own, sums, header.tensors.get(own + COUNTS))
    unknown = [n for n in header.tensors if not n.endswith((SUMS, COUNTS))]
    unknown += [n for n in header.tensors if n.endswith(COUNTS) and n.removesuffix(COUNTS) not in entries]
    if unknown or not entries:
        what = f"the tensor {unknown[0]!r}" if unknown else "no tensors"
        raise format_error(shown, f"{what} in an importance matrix; expected pairs NAME{SUMS}, NAME{COUNTS}")
    datasets = header.get("imatrix.datasets", list[str], default=list[str]())
    return Imatrix(path, entries, tuple(datasets), header.get("imatrix.chunk_count", int, default=0))


def _entry(file: BinaryIO, path: str, name: str, sums: GgufTensor, counts: GgufTensor | None) -> Entry:
    matrices = _product(sums.shape[:-1])
    if counts is None:
        raise format_error(path, f"{name + SUMS!r} has no {name + COUNTS!r}", tensor=name)
    if {sums.type, counts.type} != {"f32"} or _product(counts.shape) != matrices or matrices > MAX_MATRICES:
        message = (
            f"{name!r}: sums {sums.type} {sums.shape} and counts {counts.type} {counts.shape} do not fit; "
        )
        raise format_error(path, message + "expected f32, with one count per row of sums", tensor=name)
    numbers = _floats(file, Entry(counts.offset, matrices, (1.0,)), path, name)
    if part := next((n for n in numbers if 0 < n < 1), 0.0):
        message = f"{name!r}: a count is {part}; counts are whole numbers of rows"
        raise format_error(path, message, tensor=name, got=part)
    return Entry(sums.offset, _product(sums.shape), tuple(numbers))


def _product(shape: Iterable[int]) -> int:
    n = 1
    for each in shape:
        n *= each
    return n


def _read_legacy(path: Path, file: BinaryIO, size: int) -> Imatrix:
    """The binary form: the number of entries; of each its name, calls, values and means times calls; then the
    number of chunks and the data set, which early files lack."""
    reader = _Legacy(file, size, str(path))
    entries: dict[str, Entry] = {}
    for _ in range(reader.count("entries", size // 12)):
        name = reader.text()
        calls = reader.count("calls", 1 << 31)
        n = reader.count("values", size // 4)
        if name in entries:
            reader.fail(f"{name!r} occurs twice")
        if n == 0:
            reader.fail(f"{name!r} has no values")
        entries[name] = Entry(file.tell(), n, (float(calls),))
        reader.skip(4 * n)
    if not entries:
        reader.fail("it has no entries; is this an importance matrix?")
    if file.tell() == size:
        return Imatrix(path, entries, (), 0)
    chunks = reader.count("chunks", 1 << 31)
    datasets = (reader.text(),) if file.tell() < size else ()
    return Imatrix(path, entries, datasets, chunks)


@dataclass(frozen=True, slots=True)
class _Legacy:
    """The reader of the binary form."""

    file: BinaryIO
    size: int
    path: str

    def count(self, what: str, most: int) -> int:
        raw = self.file.read(4)
        if len(raw) < 4:
            self.fail(f"it ends before the number of {what}")
        n: int = I32.unpack(raw)[0]
        if not 0 <= n <= most:
            self.fail(
                f"the number of {what} is {n:,}, more than the file can hold; is it an importance matrix?"
            )
        return n

    def text(self) -> str:
        n = self.count("bytes of a name", 1 << 20)
        raw = self.file.read(min(n, MAX_NAME_BYTES + 1))
        if not 0 < n <= MAX_NAME_BYTES or len(raw) < n:
            self.fail(f"a name of {n:,} bytes; expected 1 to {MAX_NAME_BYTES}")
        try:
            return raw.decode("utf-8")
        except UnicodeDecodeError:
            self.fail(f"the name {raw[:20]!r} is not UTF-8")

    def skip(self, n: int) -> None:
        if self.file.tell() + n > self.size:
            self.fail(f"it ends {self.file.tell() + n - self.size:,} bytes early")
        self.file.seek(n, 1)

    def fail(self, message: str) -> NoReturn:
        raise format_error(self.path, f"not an importance matrix of GGUF or the older form: {message}")


@dataclass(frozen=True, slots=True)
class Sums:
    """Sums to write: of squares by column, [matrices * columns], and the number of rows of each matrix."""

    squares: array[float]
    counts: array[float]


def write_imatrix(
    path: str | PathLike[str],
    sums: Mapping[str, Sums],
    *,
    datasets: Sequence[str],
    chunks: int,
    chunk_size: int,
) -> None:
    """Writes the GGUF form; an interrupted run leaves no file. Raises ModelFormatError if it cannot be
    written."""
    metadata = {
        "general.type": "imatrix",
        "imatrix.datasets": list(datasets),
        "imatrix.chunk_count": chunks,
        "imatrix.chunk_size": chunk_size,
    }
    tensors = [tensor for name, each in sorted(sums.items()) for tensor in _tensors(name, each)]
    write_gguf(path, metadata=metadata, kinds=infer_kinds(metadata), tensors=tensors)


def _tensors(name: str, sums: Sums) -> Generator[TensorOut]:
    n = len(sums.counts)
    shape = (n, len(sums.squares) // n)
    yield TensorOut(name + SUMS, "f32", shape, lambda: [_bytes(sums.squares)])
    yield TensorOut(name + COUNTS, "f32", (n, 1), lambda: [_bytes(sums.counts)])


def _bytes(values: array[float]) -> bytes:
    copy = array("f", values)
    if sys.byteorder == "big":
        copy.byteswap()
    return copy.tobytes()
