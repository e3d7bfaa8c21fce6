"""safetensors: reader of a file's header, the directory of its tensors.

`read_safetensors` does no I/O: it requests byte ranges, like `read_gguf`. A file has 8 bytes of length, a
JSON header of that length, and data that the tensors cover exactly, without holes or overlaps. Specification:
https://github.com/huggingface/safetensors#format
"""

from __future__ import annotations

from dataclasses import dataclass
from os import PathLike
from typing import Any, NoReturn, TypeGuard, cast

from camelid.errors import UnsupportedModelError
from camelid.formats.gguf import LOOKALIKES, MAX_SIZE
from camelid.formats.json_text import JsonObject, parse_object, shown
from camelid.formats.source import U64, Ask, Source, format_error, located, read_file

MAX_HEADER = 100_000_000
MAX_DIMS = 64  # the format has no limit; NumPy's is 64
MAX_NAME = 255  # characters
METADATA = "__metadata__"
FIELDS = {"dtype", "shape", "data_offsets"}
# Bits per value. A row gives the size of a tensor; running a model needs a codec for its type.
DTYPES: dict[str, int] = {
    "BOOL": 8,
    "U8": 8,
    "I8": 8,
    "F8_E5M2": 8,
    "F8_E4M3": 8,
    "F8_E8M0": 8,
    "F8_E4M3FNUZ": 8,
    "F8_E5M2FNUZ": 8,
    "F4": 4,
    "F6_E2M3": 6,
    "F6_E3M2": 6,
    "I16": 16,
    "U16": 16,
    "F16": 16,
    "BF16": 16,
    "I32": 32,
    "U32": 32,
    "F32": 32,
    "C64": 64,
    "F64": 64,
    "I64": 64,
    "U64": 64,
}


@dataclass(frozen=True, slots=True)
class SafeTensor:
    """A tensor of a file. `type` is its dtype in lower case ("bf16"), `offset` is from the file's start."""

    name: str
    type: str
    shape: tuple[int, ...]
    offset: int
    n_bytes: int


@dataclass(frozen=True, slots=True)
class Safetensors:
    """The header of a file. `metadata` is its entry __metadata__, such as {"format": "pt"}."""

    metadata: dict[str, str]
    tensors: dict[str, SafeTensor]
    path: str
    file_size: int


def open_safetensors(path: str | PathLike[str]) -> Safetensors:
    """Reads the header of a local file. Raises ModelFormatError if it is unreadable or malformed."""
    return read_file(path, read_safetensors)


def read_safetensors(file_size: int, path: str = "") -> Ask[Safetensors]:
    """Parses a header: yields (offset, length), receives those bytes, returns the Safetensors.

    Raises ModelFormatError for a malformed header, UnsupportedModelError for an unknown dtype.
    """
    source = Source(file_size, path)
    data = yield from _read_header(source)
    header = parse_object(data, path=path, what="the header")
    metadata = _metadata(path, header.pop(METADATA, None))
    start = source.position
    tensors = {name: _tensor(path, name, info, start) for name, info in header.items()}
    _check_cover(path, tensors, start, file_size)
    return Safetensors(metadata, tensors, path, file_size)


def _read_header(source: Source) -> Ask[bytes]:
    if source.size < 8:
        source.fail(f"the file has {source.size} bytes, too few for a safetensors header")
    yield from source.need(min(source.size, 64))
    head = source.window
    n = yield from source.number(U64)
    hint = _lookalike(head)
    if n > MAX_HEADER:
        source.fail(f"a header of {n} bytes; at most {MAX_HEADER} are allowed{hint}")
    if n > source.remaining:
        source.fail(f"a header of {n} bytes cannot fit in the {source.remaining} that remain{hint}")
    if n < 2 or head[8:9] != b"{":
        source.fail(f"not a safetensors file: its header starts with {head[8:9]!r}, not b'{{'{hint}")
    return (yield from source.take(n))


def _lookalike(head: bytes) -> str:
    """A hint at the actual format of the file, empty if unknown."""
    if head.startswith(b"GGUF"):
        return "; this is a GGUF file, whatever its name"
    start = head.lstrip().lower()
    hints = [hint for magic, hint in LOOKALIKES if start.startswith(magic.lower())]
    return f"; {hints[0]}" if hints else ""


def _metadata(path: str, value: object) -> dict[str, str]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        _fail(path, METADATA, f"an object is expected, found {shown(value)}")
    entries = cast(dict[str, Any], value)
    for key, item in entries.items():
        if not isinstance(item, str):
            _fail(path, METADATA, f"{key!r:.80} must be a string, found {shown(item)}")
    return entries


def _tensor(path: str, name: str, info: object, start: int) -> SafeTensor:
    if not (1 <= len(name) <= MAX_NAME and name.isprintable()):
        _fail(path, f"{name!r:.80}", f"a tensor's name must be 1 to {MAX_NAME} printable characters")
    fields = _fields(path, name, info)
    dtype, bits = _dtype(path, name, fields["dtype"])
    shape = _shape(path, name, fields["shape"])
    begin, end = _offsets(path, name, fields["data_offsets"])
    n_bytes = _n_bytes(path, name, shape, bits)
    if end - begin != n_bytes:
        want = f"{dtype} of shape {shown(list(shape))} needs {n_bytes}"
        _fail(path, name, f"data_offsets [{begin}, {end}] span {end - begin} bytes, but {want}")
    return SafeTensor(name, dtype.lower(), shape, start + begin, n_bytes)


def _fields(path: str, name: str, info: object) -> JsonObject:
    if not isinstance(info, dict):
        _fail(path, name, f"an object is expected, found {shown(info)}")
    fields = cast(JsonObject, info)
    if absent := sorted(FIELDS - fields.keys()):
        _fail(path, name, f"{absent[0]} is missing")
    if unknown := sorted(fields.keys() - FIELDS):
        _fail(path, name, f"unknown field {unknown[0]!r:.80}; known: {', '.join(sorted(FIELDS))}")
    return fields


def _dtype(path: str, name: str, value: object) -> tuple[str, int]:
    if not isinstance(value, str):
        _fail(path, name, f"dtype must be a string, found {shown(value)}")
    if value not in DTYPES:
        message = f"{name}: unknown dtype {value!r:.80}; known: {', '.join(DTYPES)}"
        known = tuple(DTYPES)
        raise UnsupportedModelError(
            located(path, message), kind="dtype", name=value[:80], known=known, path=path, tensor=name
        )
    return value, DTYPES[value]


def _is_counts(value: object) -> TypeGuard[list[int]]:
    """True for a list of whole numbers from 0; true and 1.0 are not whole numbers."""
    items = cast(list[object], value)
    return isinstance(value, list) and all(type(n) is int and 0 <= n <= MAX_SIZE for n in items)


def _shape(path: str, name: str, value: object) -> tuple[int, ...]:
    if not _is_counts(value):
        _fail(path, name, f"shape must be a list of whole numbers below 2**63, found {shown(value)}")
    if len(value) > MAX_DIMS:
        _fail(path, name, f"{len(value)} dimensions; at most {MAX_DIMS} are allowed")
    return tuple(value)


def _offsets(path: str, name: str, value: object) -> tuple[int, int]:
    if not _is_counts(value) or len(value) != 2 or value[0] > value[1]:
        _fail(path, name, f"data_offsets must be [begin, end] with begin <= end, found {shown(value)}")
    return value[0], value[1]


def _n_bytes(path: str, name: str, shape: tuple[int, ...], bits: int) -> int:
    """Bytes of a tensor.

    As in the original reader, a product must not overflow even if a later factor is 0.
    """
    n_bits = bits
    for n in shape:
        n_bits *= n
        if n_bits > 8 * MAX_SIZE:
            _fail(path, name, f"shape {shown(list(shape))} overflows: more than {MAX_SIZE} bytes")
    if n_bits % 8:
        _fail(path, name, f"its {n_bits} bits do not fill whole bytes")
    return n_bits // 8


def _check_cover(path: str, tensors: dict[str, SafeTensor], start: int, file_size: int) -> None:
    """Checks that every byte of the data belongs to exactly one tensor."""
    end = start
    for tensor in sorted(tensors.values(), key=lambda tensor: (tensor.offset, tensor.n_bytes)):
        if tensor.offset != end:
            how = "overlap the tensor before it" if tensor.offset < end else "leave a hole before it"
            begin, want = tensor.offset - start, end - start
            _fail(path, tensor.name, f"its data_offsets {how}: they begin at {begin}, not {want}")
        end += tensor.n_bytes
    if end != file_size:
        cut = "; was the download interrupted?" if end > file_size else ""
        message = f"the tensors end at byte {end}, the file at {file_size}{cut}"
        raise format_error(path, message, got=file_size, want=end)


def _fail(path: str, name: str, message: str) -> NoReturn:
    raise format_error(path, f"{name}: {message}", name=name)
