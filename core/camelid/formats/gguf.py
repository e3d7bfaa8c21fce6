"""GGUF: reader of a model file's metadata and tensor directory.

`read_gguf` does no I/O. It is a generator that yields byte ranges and receives their bytes, so one parser
serves a local file (`open_gguf`), HTTP Range requests and a File in a browser (`fetch_gguf`). A size is
checked against the rest of the file before memory is allocated for it. Specification:
https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
"""

from __future__ import annotations

import struct
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from math import prod
from os import PathLike
from typing import NoReturn

from camelid.errors import UnsupportedModelError
from camelid.formats.gguf_header import Gguf, GgufTensor, MetadataValue
from camelid.formats.quants import QuantType, quant_by_id
from camelid.formats.source import U64, Ask, Source, located, read_file, read_remote

__all__ = ["Gguf", "GgufTensor", "MetadataValue", "fetch_gguf", "open_gguf", "read_gguf"]

MAGIC = b"GGUF"
VERSIONS = (2, 3)
DEFAULT_ALIGNMENT = 32
MAX_NAME_BYTES = 63  # GGML_MAX_NAME is 64 with the closing zero
MAX_KEY_BYTES = 65535
MAX_DIMS = 4
# Chat templates have 100 KB; one wide character makes Python's copy of a string four times as large.
MAX_STRING_BYTES = 16 << 20
# A Python object needs up to 60 bytes per item and 600 per entry or tensor; these limits bound the sum to 0.6
# GB.
MAX_ARRAY_ITEMS = 1 << 22  # in all arrays together; the largest known files have 1.3 million
MAX_ENTRIES = 1 << 16
MAX_TENSORS = 1 << 18
MAX_SIZE = (1 << 63) - 1  # sizes must fit a signed 64-bit integer on every backend
MIN_ENTRY_BYTES = 14  # key length, one byte of key, type, one byte of value
MIN_TENSOR_BYTES = 33  # name length, one byte of name, n_dims, one dim, type, offset

U32 = struct.Struct("<I")
STRING, ARRAY = 8, 9
NUMBERS: dict[int, tuple[str, str, int]] = {  # id: (name, struct code, bytes)
    0: ("uint8", "B", 1),
    1: ("int8", "b", 1),
    2: ("uint16", "H", 2),
    3: ("int16", "h", 2),
    4: ("uint32", "I", 4),
    5: ("int32", "i", 4),
    6: ("float32", "f", 4),
    7: ("bool", "B", 1),
    10: ("uint64", "Q", 8),
    11: ("int64", "q", 8),
    12: ("float64", "d", 8),
}
LOOKALIKES: tuple[tuple[bytes, str], ...] = (
    (b"version https://git-lfs", "this is a Git LFS pointer, not the model: run `git lfs pull`"),
    (b"PK\x03\x04", "this is a ZIP or PyTorch archive: convert the model to GGUF first"),
    (b"\x1f\x8b", "this is a gzip file: unpack it first"),
    (b"<!doctype", "this is a web page: the download link led to HTML, not to the file"),
    (b"<html", "this is a web page: the download link led to HTML, not to the file"),
    (b"fugg", "this looks like a big-endian GGUF, which Camelid does not read: convert the model again"),
    (b"lmgg", "this is GGML, the format before GGUF: convert the model again"),
    (b"fmgg", "this is GGMF, a format before GGUF: convert the model again"),
    (b"tjgg", "this is GGJT, a format before GGUF: convert the model again"),
)


def open_gguf(path: str | PathLike[str]) -> Gguf:
    """Reads the header of a local file. Raises ModelFormatError if it is unreadable or malformed."""
    return read_file(path, _parser)


async def fetch_gguf(read: Callable[[int, int], Awaitable[bytes]], file_size: int, path: str = "") -> Gguf:
    """Reads the header of a remote file; `read(offset, length)` returns exactly those bytes."""
    return await read_remote(read, file_size, path, _parser)


def _parser(file_size: int, path: str) -> Ask[Gguf]:
    return read_gguf(file_size, path=path)


def read_gguf(file_size: int, *, path: str = "") -> Ask[Gguf]:
    """Parses a header: yields (offset, length), receives those bytes, returns the Gguf.

    Reads are in order: 64 KiB first, then doubling up to 1 MiB, never beyond `file_size` bytes. Raises
    ModelFormatError for a malformed header, UnsupportedModelError for an unknown version or tensor type.
    """
    source = Source(file_size, path)
    version = yield from _read_version(source)
    n_tensors = yield from _read_count(source, "tensors", MIN_TENSOR_BYTES, MAX_TENSORS)
    n_entries = yield from _read_count(source, "metadata entries", MIN_ENTRY_BYTES, MAX_ENTRIES)
    metadata, kinds = yield from _read_metadata(source, n_entries)
    alignment = _alignment(source, metadata, kinds)
    infos = yield from _read_infos(source, n_tensors)
    data_offset = _padded(source.position, alignment)
    tensors = _place(source, infos, data_offset, alignment)
    return Gguf(version, alignment, metadata, kinds, tensors, data_offset, file_size, path)


def _read_version(source: Source) -> Ask[int]:
    if source.size == 0:
        source.fail("the file is empty")
    yield from source.need(min(source.size, 64))
    if source.window[:4] != MAGIC:
        source.fail(
            f"not a GGUF file: it starts with {source.window[:4]!r}, not {MAGIC!r}{_lookalike(source.window)}"
        )
    yield from source.take(4)
    version = yield from source.number(U32)
    if version not in VERSIONS:
        _refuse_version(source, version)
    return version


def _refuse_version(source: Source, version: int) -> NoReturn:
    if version & 0xFFFF == 0:
        source.fail("a big-endian GGUF file; Camelid reads little-endian files: convert the model again")
    advice = (
        "convert the model again with a newer converter" if version < 2 else "a newer Camelid may read it"
    )
    message = located(source.path, f"GGUF version {version} is not supported, only 2 and 3; {advice}")
    raise UnsupportedModelError(message, kind="GGUF version", name=str(version), known=VERSIONS)


def _lookalike(head: bytes) -> str:
    if head[8:9] == b"{" and head[4:8] == bytes(4):
        return "; this looks like safetensors"
    start = head.lstrip().lower()
    hints = [hint for magic, hint in LOOKALIKES if start.startswith(magic.lower())]
    return f"; {hints[0]}" if hints else ""


def _read_count(source: Source, what: str, min_bytes: int, limit: int) -> Ask[int]:
    n = yield from source.number(U64)
    if n > limit:
        source.fail(f"{n} {what}; at most {limit} are allowed")
    if n > source.remaining // min_bytes:
        source.fail(f"{n} {what} cannot fit in the {source.remaining} bytes that remain")
    return n


def _read_metadata(source: Source, n: int) -> Ask[tuple[dict[str, MetadataValue], dict[str, str]]]:
    metadata: dict[str, MetadataValue] = {}
    kinds: dict[str, str] = {}
    n_items = 0
    for _ in range(n):
        key = yield from source.text("metadata key", MAX_KEY_BYTES)
        if key in metadata:
            source.fail(f"the metadata key {key!r} occurs twice")
        type_id = yield from source.number(U32)
        kinds[key], metadata[key] = yield from _read_value(source, key, type_id, MAX_ARRAY_ITEMS - n_items)
        n_items += len(value) if isinstance(value := metadata[key], list) else 0
    return metadata, kinds


def _read_value(source: Source, key: str, type_id: int, room: int) -> Ask[tuple[str, MetadataValue]]:
    if type_id == ARRAY:
        return (yield from _read_array(source, key, room))
    if type_id == STRING:
        return "string", (yield from _read_strings(source, key, 1))[0]
    name = _number_name(source, key, type_id)
    return name, (yield from _read_numbers(source, key, type_id, 1))[0]


def _read_array(source: Source, key: str, room: int) -> Ask[tuple[str, MetadataValue]]:
    type_id = yield from source.number(U32)
    n = yield from source.number(U64)
    if type_id == ARRAY:
        source.fail(f"{key}: arrays inside arrays are not supported")
    name = "string" if type_id == STRING else _number_name(source, key, type_id)
    item_bytes = 8 if type_id == STRING else NUMBERS[type_id][2]  # a string has at least its length
    if n > room:
        source.fail(f"{key}: an array of {n} items; at most {MAX_ARRAY_ITEMS} are allowed in all arrays")
    if n * item_bytes > source.remaining:
        source.fail(f"{key}: an array of {n} items cannot fit in the {source.remaining} bytes that remain")
    read = _read_strings(source, key, n) if type_id == STRING else _read_numbers(source, key, type_id, n)
    return f"array[{name}]", (yield from read)


def _number_name(source: Source, key: str, type_id: int) -> str:
    if type_id not in NUMBERS:
        source.fail(f"{key}: unknown metadata type {type_id}; GGUF defines 0 to 12")
    return NUMBERS[type_id][0]


def _read_numbers(
    source: Source, key: str, type_id: int, n: int
) -> Ask[list[int] | list[float] | list[bool]]:
    name, code, size = NUMBERS[type_id]
    data = yield from source.take(n * size)
    if name != "bool":
        return list(struct.unpack(f"<{n}{code}", data))
    odd = data.strip(b"\0\1")
    if odd:
        source.fail(f"{key}: a bool must be 0 or 1, found {odd[0]}")
    return [byte == 1 for byte in data]


def _read_strings(source: Source, key: str, n: int) -> Ask[list[str]]:
    """Reads `n` strings.

    Bytes that are not UTF-8 become lone surrogates (surrogateescape), which encode back.
    """
    values: list[str] = []
    while len(values) < n:
        want = _take_strings(source, n, values)
        _check_string(source, key, want - 8)
        yield from source.need(want)
    return values


def _check_string(source: Source, key: str, length: int) -> None:
    if length > MAX_STRING_BYTES:
        source.fail(f"{key}: a string of {length} bytes; at most {MAX_STRING_BYTES} are allowed")
    if length > source.remaining - 8:
        source.fail(f"{key}: a string of {length} bytes cannot fit in the {source.remaining - 8} that remain")


def _take_strings(source: Source, n: int, values: list[str]) -> int:
    """Moves complete strings from the window to `values`. Returns the bytes of the next string, 0 if done."""
    window, cursor, end = source.window, source.cursor, len(source.window)
    want = 0
    for _ in range(n - len(values)):
        if cursor + 8 > end:
            want = 8
            break
        stop = cursor + 8 + U64.unpack_from(window, cursor)[0]
        if stop > end:
            want = stop - cursor
            break
        values.append(window[cursor + 8 : stop].decode("utf-8", "surrogateescape"))
        cursor = stop
    source.cursor = cursor
    return want


def _alignment(source: Source, metadata: dict[str, MetadataValue], kinds: dict[str, str]) -> int:
    value = metadata.get("general.alignment", DEFAULT_ALIGNMENT)
    kind = kinds.get("general.alignment", "uint32")
    if kind != "uint32" or not isinstance(value, int):
        source.fail(f"general.alignment must be uint32, found {kind}")
    if value < 1 or value & (value - 1):
        source.fail(f"general.alignment must be a power of two, found {value}")
    return value


@dataclass(frozen=True, slots=True)
class _Info:
    """A tensor as the directory lists it; `relative` is its offset from the start of the data."""

    name: str
    type: str
    shape: tuple[int, ...]
    n_bytes: int
    relative: int


def _read_infos(source: Source, n: int) -> Ask[dict[str, _Info]]:
    infos: dict[str, _Info] = {}
    for _ in range(n):
        name = yield from source.text("tensor name", MAX_NAME_BYTES)
        if name in infos:
            source.fail(f"the tensor {name!r} occurs twice")
        infos[name] = yield from _read_info(source, name)
    return infos


def _read_info(source: Source, name: str) -> Ask[_Info]:
    n_dims = yield from source.number(U32)
    if not 1 <= n_dims <= MAX_DIMS:
        source.fail(f"{name}: {n_dims} dimensions; 1 to {MAX_DIMS} are allowed")
    dims = struct.unpack(f"<{n_dims}Q", (yield from source.take(8 * n_dims)))
    row = _quant(source, name, (yield from source.number(U32)))
    n_bytes = _tensor_bytes(source, name, row, dims)
    relative = yield from source.number(U64)
    return _Info(name, row.name, dims[::-1], n_bytes, relative)


def _quant(source: Source, name: str, type_id: int) -> QuantType:
    try:
        return quant_by_id(type_id)
    except UnsupportedModelError as error:
        facts = {**error.facts, "path": source.path, "tensor": name}
        raise UnsupportedModelError(located(source.path, f"{name}: {error.message}"), **facts) from None


def _tensor_bytes(source: Source, name: str, row: QuantType, dims: tuple[int, ...]) -> int:
    if 0 in dims:
        source.fail(f"{name}: shape {dims[::-1]} has a dimension of 0")
    n = prod(dims)
    if n > MAX_SIZE:
        source.fail(f"{name}: shape {dims[::-1]} overflows: {n} values")
    if dims[0] % row.block:
        source.fail(f"{name}: rows of {dims[0]} values do not divide into {row.name} blocks of {row.block}")
    n_bytes = n // row.block * row.block_bytes
    if n_bytes > MAX_SIZE:
        source.fail(f"{name}: shape {dims[::-1]} overflows: {n_bytes} bytes")
    return n_bytes


def _place(
    source: Source, infos: dict[str, _Info], data_offset: int, alignment: int
) -> dict[str, GgufTensor]:
    """Computes absolute offsets.

    Tensors must follow each other without holes, each padded to the alignment.
    """
    tensors: dict[str, GgufTensor] = {}
    expected = 0
    for info in infos.values():
        _check_offset(source, info, expected, alignment)
        offset = data_offset + info.relative
        if offset + info.n_bytes > source.size:
            source.fail(
                f"{info.name}: its data ends at byte {offset + info.n_bytes}, the file at {source.size}; "
                "was the download interrupted?"
            )
        tensors[info.name] = GgufTensor(info.name, info.type, info.shape, offset, info.n_bytes)
        expected = _padded(info.relative + info.n_bytes, alignment)
    return tensors


def _check_offset(source: Source, info: _Info, expected: int, alignment: int) -> None:
    if info.relative % alignment:
        source.fail(f"{info.name}: its offset {info.relative} is not aligned to {alignment}")
    if info.relative != expected:
        source.fail(
            f"{info.name}: its offset is {info.relative}, but the tensor before it ends at {expected}"
        )


def _padded(offset: int, alignment: int) -> int:
    return (offset + alignment - 1) & -alignment
