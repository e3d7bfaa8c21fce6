"""GGUF writer: versions 2 and 3, streamed, checked by the same rules as the reader.

A file appears under its name only when complete: it is written under a temporary name in the same folder, and
renamed after fsync. Memory holds the metadata and one chunk of tensor data.
Specification: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from math import prod
from os import PathLike, fspath, fsync
from pathlib import Path
from typing import BinaryIO, NoReturn, TypeAlias

from camelid.errors import CamelidError, UnsupportedModelError
from camelid.formats.gguf import (
    DEFAULT_ALIGNMENT,
    MAGIC,
    MAX_ARRAY_ITEMS,
    MAX_DIMS,
    MAX_ENTRIES,
    MAX_NAME_BYTES,
    MAX_SIZE,
    MAX_TENSORS,
    U32,
    VERSIONS,
)
from camelid.formats.gguf_header import MetadataValue
from camelid.formats.gguf_values import encode_entry, encode_name, infer_kind
from camelid.formats.progress import Progress
from camelid.formats.quants import GGUF_TYPES, QUANTS, quant
from camelid.formats.source import MAX_HEADER_BYTES, U64, format_error, located

Chunks: TypeAlias = Callable[[], Iterable[bytes | bytearray | memoryview]]


@dataclass(frozen=True, slots=True)
class TensorOut:
    """A tensor to write: `shape` is row-major, and `chunks()` yields exactly the bytes of its type."""

    name: str
    type: str
    shape: tuple[int, ...]
    chunks: Chunks


def infer_kinds(
    metadata: Mapping[str, MetadataValue], kinds: Mapping[str, str] | None = None
) -> dict[str, str]:
    """The kind of every key: its kind in `kinds`, else the default kind of the value's Python type.

    An int is uint32 if it fits, else int32 or int64 if negative, else uint64; a float is float32. A list has
    the first of these kinds that fits all items. Raises ModelFormatError for an empty or mixed list.
    """
    explicit = kinds or {}
    return {
        key: explicit[key] if key in explicit else infer_kind(key, value) for key, value in metadata.items()
    }


def write_gguf(
    path: str | PathLike[str],
    *,
    metadata: Mapping[str, MetadataValue],
    kinds: Mapping[str, str],
    tensors: Sequence[TensorOut],
    alignment: int | None = None,
    version: int = 3,
    progress: Progress | None = None,
) -> None:
    """Writes a file completely, or leaves no file behind.

    `kinds` maps each key to its stored type, as in `Gguf.kinds` ("uint32", "array[string]", ...). `alignment`
    defaults to the metadata's alignment, else 32; an alignment other than 32 is added to the metadata. Raises
    ModelFormatError if the file would break a rule of the reader, if the chunks of a tensor have the wrong
    number of bytes, and if the file cannot be written; UnsupportedModelError for an unknown version or tensor
    type.
    """
    name = fspath(path)
    with _located(name):
        entries, step = _with_alignment(metadata, kinds, alignment)
        plan = _plan(tensors, step)
        head = _header(version, entries, plan)
        with _whole_file(name, plan.n_bytes) as out:
            _write_header(out, head)
            out.pad(step)
            _write_tensors(out, plan, step, progress)


@contextmanager
def _located(path: str) -> Generator[None]:
    """Prefixes errors of the block with the path, and adds the path to their facts."""
    try:
        yield
    except CamelidError as error:
        if error.facts.get("path"):
            raise
        raise type(error)(located(path, error.message), **{**error.facts, "path": path}) from None


Entries: TypeAlias = dict[str, tuple[str, MetadataValue]]  # key: (kind, value)


def _with_alignment(
    metadata: Mapping[str, MetadataValue], kinds: Mapping[str, str], alignment: int | None
) -> tuple[Entries, int]:
    _check_keys(metadata, kinds)
    entries = {key: (kinds[key], value) for key, value in metadata.items()}
    default = DEFAULT_ALIGNMENT if alignment is None else alignment
    kind, stored = entries.get("general.alignment", ("uint32", default))
    if kind != "uint32" or type(stored) is not int:
        _fail(f"general.alignment must be uint32, found {stored!r} as {kind}", key="general.alignment")
    if alignment not in (None, stored):
        _fail(f"alignment {alignment} was requested, but general.alignment is {stored}", alignment=alignment)
    if not 0 < stored < 1 << 32 or stored & (stored - 1):
        _fail(f"the alignment must be a power of two below 2**32, found {stored}", alignment=stored)
    if stored != DEFAULT_ALIGNMENT:
        entries.setdefault("general.alignment", ("uint32", stored))
    return entries, stored


def _check_keys(metadata: Mapping[str, MetadataValue], kinds: Mapping[str, str]) -> None:
    if odd := metadata.keys() ^ kinds.keys():
        key = min(odd)
        lacks = "kind is given" if key in metadata else "value is given"
        _fail(f"{key}: no {lacks}; infer_kinds makes a kind for every key", key=key)


@dataclass(frozen=True, slots=True)
class _Placed:
    """A tensor with the total bytes of its chunks, and its offset from the start of the data."""

    out: TensorOut
    n_bytes: int
    relative: int


@dataclass(frozen=True, slots=True)
class _Plan:
    placed: tuple[_Placed, ...]
    n_bytes: int  # of all tensors, without padding


def _plan(tensors: Sequence[TensorOut], alignment: int) -> _Plan:
    placed: dict[str, _Placed] = {}
    relative = 0
    for tensor in tensors:
        if tensor.name in placed:
            _fail(f"the tensor {tensor.name!r} occurs twice", tensor=tensor.name)
        n_bytes = _tensor_bytes(tensor)
        placed[tensor.name] = _Placed(tensor, n_bytes, relative)
        relative += n_bytes + -n_bytes % alignment
    if relative > MAX_SIZE:
        _fail(f"the tensors need {relative} bytes; at most {MAX_SIZE} are allowed", n_bytes=relative)
    return _Plan(tuple(placed.values()), sum(tensor.n_bytes for tensor in placed.values()))


def _tensor_bytes(tensor: TensorOut) -> int:
    name, shape = tensor.name, tensor.shape
    if tensor.type not in GGUF_TYPES:
        known = tuple(name for name in QUANTS if name in GGUF_TYPES)
        message = f"{name}: unknown tensor type {tensor.type!r}; known: {', '.join(known)}"
        raise UnsupportedModelError(message, kind="tensor type", name=tensor.type, known=known, tensor=name)
    if not 1 <= len(shape) <= MAX_DIMS:
        _fail(f"{name}: {len(shape)} dimensions; 1 to {MAX_DIMS} are allowed", tensor=name, got=shape)
    if any(type(n) is not int or n < 1 for n in shape):
        _fail(f"{name}: shape {shape} must have whole numbers from 1", tensor=name, got=shape)
    row = quant(tensor.type)
    if shape[-1] % row.block:
        message = f"{name}: rows of {shape[-1]} values do not divide into {row.name} blocks of {row.block}"
        _fail(message, tensor=name, got=shape[-1], want=row.block)
    n_values = prod(shape)
    n_bytes = n_values // row.block * row.block_bytes
    if max(n_values, n_bytes) > MAX_SIZE:
        _fail(f"{name}: shape {shape} overflows: {n_values} values", tensor=name, got=shape)
    return n_bytes


def _header(version: int, entries: Entries, plan: _Plan) -> Iterator[bytes]:
    if version not in VERSIONS:
        message = f"GGUF version {version} is not written, only 2 and 3"
        raise UnsupportedModelError(message, kind="GGUF version", name=str(version), known=VERSIONS)
    _check_totals(entries, plan)
    yield MAGIC + U32.pack(version) + U64.pack(len(plan.placed)) + U64.pack(len(entries))
    for key, (kind, value) in entries.items():
        yield from encode_entry(key, kind, value)
    for placed in plan.placed:
        yield _info(placed)


def _check_totals(entries: Entries, plan: _Plan) -> None:
    n_items = sum(len(value) for _, value in entries.values() if isinstance(value, list))
    totals = (
        ("metadata entries", len(entries), MAX_ENTRIES),
        ("tensors", len(plan.placed), MAX_TENSORS),
        ("items in arrays", n_items, MAX_ARRAY_ITEMS),
    )
    for what, n, limit in totals:
        if n > limit:
            _fail(f"{n} {what}; at most {limit} are allowed", got=n, want=limit)


def _info(placed: _Placed) -> bytes:
    tensor = placed.out
    name = encode_name("tensor name", tensor.name, MAX_NAME_BYTES)
    dims = b"".join(U64.pack(n) for n in reversed(tensor.shape))
    ids = U32.pack(quant(tensor.type).id) + U64.pack(placed.relative)
    return name + U32.pack(len(tensor.shape)) + dims + ids


class _Output:
    """The file under its temporary name. Only OSErrors of this file become "cannot be written" errors."""

    def __init__(self, file: BinaryIO, path: str, n_bytes: int) -> None:
        self.file = file
        self.path = path
        self.n_bytes = n_bytes
        self.position = 0

    def write(self, data: bytes | bytearray | memoryview) -> None:
        try:
            self.file.write(data)
        except OSError as error:
            raise _unwritable(self.path, error, self.n_bytes) from error
        self.position += memoryview(data).nbytes

    def pad(self, alignment: int) -> None:
        """Writes zeros up to the next multiple of `alignment`, in pieces, since an alignment may be 2 GiB."""
        n = -self.position % alignment
        while n:
            self.write(bytes(min(n, 1 << 20)))
            n -= min(n, 1 << 20)

    def flush(self) -> None:
        try:
            self.file.flush()
            fsync(self.file.fileno())
        except OSError as error:
            raise _unwritable(self.path, error, self.n_bytes) from error


@contextmanager
def _whole_file(path: str, n_bytes: int) -> Generator[_Output]:
    """Opens a temporary file; renames it to `path` if the block succeeds, deletes it otherwise."""
    target = Path(path)
    part = target.parent / f".{secrets.token_hex(8)}.part"
    try:
        if target.exists() and not target.is_file():
            raise format_error(path, "cannot be written: it exists and is not a regular file", got="special")
        file = part.open("xb")
    except OSError as error:
        raise _unwritable(path, error, n_bytes) from error
    try:
        output = _Output(file, path, n_bytes)
        yield output
        output.flush()
        file.close()
        _rename(part, target, n_bytes)
    except BaseException:
        with suppress(OSError):  # close flushes the bytes again that the disk has refused
            file.close()
        part.unlink(missing_ok=True)
        raise


def _rename(part: Path, target: Path, n_bytes: int) -> None:
    try:
        part.replace(target)
    except OSError as error:
        raise _unwritable(str(target), error, n_bytes) from error


def _unwritable(path: str, error: OSError, n_bytes: int) -> CamelidError:
    reason = error.strerror or type(error).__name__
    message = f"cannot be written: {reason}; its tensors need {n_bytes} bytes, and no partial file was left"
    return format_error(path, message, n_bytes=n_bytes)


def _write_header(out: _Output, pieces: Iterator[bytes]) -> None:
    for piece in pieces:
        out.write(piece)
        if out.position > MAX_HEADER_BYTES:
            _fail(f"the header is larger than {MAX_HEADER_BYTES} bytes", want=MAX_HEADER_BYTES)


def _write_tensors(out: _Output, plan: _Plan, alignment: int, progress: Progress | None) -> None:
    done = 0
    for placed in plan.placed:
        for n in _write_tensor(out, placed):
            done += n
            if progress:
                progress(placed.out.name, done, plan.n_bytes)
        out.pad(alignment)


def _write_tensor(out: _Output, placed: _Placed) -> Iterator[int]:
    """Writes the chunks of a tensor, and yields the size of each."""
    remaining = placed.n_bytes
    for chunk in placed.out.chunks():
        n = memoryview(chunk).nbytes
        remaining -= n
        if remaining < 0:
            _wrong_size(placed, f"more than {placed.n_bytes}")
        out.write(chunk)
        yield n
    if remaining:
        _wrong_size(placed, str(placed.n_bytes - remaining))


def _wrong_size(placed: _Placed, got: str) -> NoReturn:
    tensor = placed.out
    want = f"{tensor.type} of shape {tensor.shape} needs {placed.n_bytes}"
    _fail(f"{tensor.name}: its chunks have {got} bytes, but {want}", tensor=tensor.name, got=got)


def _fail(message: str, **facts: object) -> NoReturn:
    raise format_error("", message, **facts)
