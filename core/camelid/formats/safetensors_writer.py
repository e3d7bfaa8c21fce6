"""safetensors: writer of one file, streamed into place, checked by the same rules as the reader.

Tensors that are made together, such as the planes of a quantized matrix, are written together: each chunk
goes to its tensor's place in the file, so memory holds one chunk.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from os import PathLike, fspath, fsync
from pathlib import Path
from typing import BinaryIO, TypeAlias

from camelid.errors import CamelidError
from camelid.formats.progress import Progress
from camelid.formats.safetensors import DTYPES, MAX_HEADER, MAX_NAME, METADATA
from camelid.formats.source import U64, format_error

Chunks: TypeAlias = Callable[[], Iterable[Sequence[bytes]]]


@dataclass(frozen=True, slots=True)
class SafeTensorOut:
    """A tensor to write; `type` is its dtype in lower case ("bf16")."""

    name: str
    type: str
    shape: tuple[int, ...]

    @property
    def n_bits(self) -> int:
        """Bits of one value."""
        return DTYPES[self.type.upper()]

    @property
    def n_bytes(self) -> int:
        """Bytes of all values."""
        return prod(self.shape) * self.n_bits // 8


@dataclass(frozen=True, slots=True)
class TensorsOut:
    """Tensors that are made together: each chunk has the next bytes of every tensor."""

    tensors: tuple[SafeTensorOut, ...]
    chunks: Chunks


def write_safetensors(
    path: str | PathLike[str],
    groups: Iterable[TensorsOut],
    *,
    metadata: Mapping[str, str],
    progress: Progress | None = None,
) -> None:
    """Writes a new file, with wide dtypes first so that every tensor is aligned.

    `progress` receives bytes. Raises ModelFormatError for a name that the reader refuses or that occurs
    twice, for chunks whose bytes do not fill their tensors, and if the file cannot be written; the file is
    then incomplete.
    """
    out = list(groups)
    places = _places(fspath(path), [tensor for group in out for tensor in group.tensors])
    n_bytes = sum(tensor.n_bytes for group in out for tensor in group.tensors)
    head = _header(fspath(path), places, metadata)
    file = _File(Path(path), n_bytes)
    try:
        file.put(0, head)
        starts = {name: len(head) + at for name, (_, at) in places.items()}
        done = 0
        for group in out:
            done = _write_group(file, group, starts, done, progress)
        file.flush()
    finally:
        file.close()


Places: TypeAlias = dict[str, tuple[SafeTensorOut, int]]  # name: (tensor, offset from the start of the data)


def _places(path: str, tensors: list[SafeTensorOut]) -> Places:
    places: Places = {}
    at = 0
    for tensor in sorted(tensors, key=lambda tensor: -tensor.n_bits):
        if tensor.name in places:
            raise format_error(path, f"the tensor {tensor.name!r} occurs twice", name=tensor.name)
        if not (1 <= len(tensor.name) <= MAX_NAME and tensor.name.isprintable()):
            message = f"{tensor.name!r:.80}: a tensor's name must be 1 to {MAX_NAME} printable characters"
            raise format_error(path, message, name=tensor.name)
        places[tensor.name] = tensor, at
        at += tensor.n_bytes
    return places


def _header(path: str, places: Places, metadata: Mapping[str, str]) -> bytes:
    """The length and the JSON header, padded with spaces to 8 bytes."""
    entries: dict[str, object] = {METADATA: dict(metadata)} if metadata else {}
    for name, (tensor, at) in places.items():
        offsets = [at, at + tensor.n_bytes]
        entries[name] = {
            "dtype": tensor.type.upper(),
            "shape": list(tensor.shape),
            "data_offsets": offsets,
        }
    text = json.dumps(entries, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    if len(text) > MAX_HEADER:
        message = f"a header of {len(text)} bytes; at most {MAX_HEADER} are allowed"
        raise format_error(path, message, got=len(text), want=MAX_HEADER)
    return U64.pack(len(text)) + text


def _write_group(
    file: _File, group: TensorsOut, starts: Mapping[str, int], done: int, progress: Progress | None
) -> int:
    """Writes the chunks of a group; returns the bytes of all groups so far."""
    ends = [starts[tensor.name] for tensor in group.tensors]
    for chunk in group.chunks():
        for i, data in enumerate(chunk):
            file.put(ends[i], data)
            ends[i] += len(data)
            done += len(data)
        if progress:
            progress(group.tensors[0].name, done, file.n_bytes)
    for tensor, end in zip(group.tensors, ends, strict=True):
        if end - starts[tensor.name] != tensor.n_bytes:
            got = end - starts[tensor.name]
            want = f"{tensor.type} of shape {tensor.shape} needs {tensor.n_bytes}"
            message = f"{tensor.name}: its chunks have {got} bytes, but {want}"
            raise format_error(str(file.path), message, name=tensor.name, got=got, want=tensor.n_bytes)
    return done


class _File:
    """A new file. Its OSErrors become "cannot be written" errors, those of the chunks' makers do not."""

    def __init__(self, path: Path, n_bytes: int) -> None:
        self.path = path
        self.n_bytes = n_bytes
        try:
            self._file: BinaryIO = path.open("xb")
        except OSError as error:
            raise self._unwritable(error) from error

    def put(self, at: int, data: bytes) -> None:
        try:
            self._file.seek(at)
            self._file.write(data)
        except OSError as error:
            raise self._unwritable(error) from error

    def flush(self) -> None:
        try:
            self._file.flush()
            fsync(self._file.fileno())
        except OSError as error:
            raise self._unwritable(error) from error

    def close(self) -> None:
        # Close flushes the bytes again that a full disk has refused: that error is the same one.
        try:
            self._file.close()
        except OSError as error:
            raise self._unwritable(error) from error

    def _unwritable(self, error: OSError) -> CamelidError:
        reason = error.strerror or type(error).__name__
        message = f"cannot be written: {reason}; its tensors need {self.n_bytes} bytes"
        return format_error(str(self.path), message, n_bytes=self.n_bytes)
