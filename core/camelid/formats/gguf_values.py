"""Metadata values of GGUF for the writer: the kind of a Python value, its range, its bytes."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from typing import NoReturn

from camelid.formats.gguf import ARRAY, MAX_KEY_BYTES, MAX_STRING_BYTES, NUMBERS, STRING, U32
from camelid.formats.gguf_header import MetadataValue
from camelid.formats.source import U64, format_error

PIECE_ITEMS = 8192  # array items that are encoded at once
NUMBER_IDS: dict[str, int] = {name: type_id for type_id, (name, _, _) in NUMBERS.items()}
# In order of preference for a list of ints.
INT_RANGES: dict[str, tuple[int, int]] = {
    "uint32": (0, (1 << 32) - 1),
    "int32": (-1 << 31, (1 << 31) - 1),
    "uint64": (0, (1 << 64) - 1),
    "int64": (-1 << 63, (1 << 63) - 1),
}
PYTHON_TYPES: dict[str, type] = {"float32": float, "float64": float, "bool": bool, "string": str}  # else int
INFERRED: dict[type, Callable[[str, Sequence[int]], str]] = {
    bool: lambda key, items: "bool",
    int: lambda key, items: _int_kind(key, items),
    float: lambda key, items: "float32",
    str: lambda key, items: "string",
}


def infer_kind(key: str, value: MetadataValue) -> str:
    """The default kind of a Python value.

    Raises ModelFormatError for an empty or mixed list or another type.
    """
    if not isinstance(value, list):
        return _item_kind(key, [value])
    if not value:
        _fail(key, "an empty list has no kind of its own: name one, such as array[string]")
    return f"array[{_item_kind(key, value)}]"


def _item_kind(key: str, items: Sequence[object]) -> str:
    types = {type(item) for item in items}
    found = types.pop()
    if types or found not in INFERRED:
        names = ", ".join(sorted(kind.__name__ for kind in {found, *types}))
        _fail(key, f"GGUF stores an int, float, bool, str or a list of one of them, not {names}")
    return INFERRED[found](key, items)  # type: ignore[arg-type]


def _int_kind(key: str, items: Sequence[int]) -> str:
    low, high = min(items), max(items)
    for kind, (least, most) in INT_RANGES.items():
        if least <= low and high <= most:
            return kind
    _fail(key, f"no integer type fits both {_shown(low)} and {_shown(high)}")


def encode_name(what: str, name: str, limit: int) -> bytes:
    """Encodes a key or tensor name with its length, by the reader's rules: printable, 1 to `limit` bytes."""
    if not name.isprintable():
        message = f"a {what} contains control characters or lone surrogates: {name[:64]!r}"
        raise format_error("", message, got=name)
    data = name.encode("utf-8")
    if not 1 <= len(data) <= limit:
        raise format_error("", f"a {what} of {len(data)} bytes; it must have 1 to {limit}", got=name[:64])
    return U64.pack(len(data)) + data


def encode_entry(key: str, kind: str, value: MetadataValue) -> Iterator[bytes]:
    """Encodes one metadata entry, in pieces. Raises ModelFormatError if the value is not of the kind."""
    yield encode_name("metadata key", key, MAX_KEY_BYTES)
    item_kind = kind[6:-1] if kind.startswith("array[") and kind.endswith("]") else kind
    if item_kind not in NUMBER_IDS and item_kind != "string":
        known = ", ".join([*NUMBER_IDS, "string"])
        _fail(key, f"unknown kind {kind!r}; known: {known}, and array[...] of one of them")
    type_id = U32.pack(NUMBER_IDS.get(item_kind, STRING))
    if item_kind == kind:
        yield type_id + _encode_items(key, kind, [value])
        return
    if not isinstance(value, list):
        _fail(key, f"{_shown(value)} is not a list, but its kind is {kind}")
    yield U32.pack(ARRAY) + type_id + U64.pack(len(value))
    yield from _encode_array(key, item_kind, value)


def _encode_array(key: str, kind: str, items: Sequence[object]) -> Iterator[bytes]:
    for start in range(0, len(items), PIECE_ITEMS):
        yield _encode_items(key, kind, items[start : start + PIECE_ITEMS])


def _encode_items(key: str, kind: str, items: Sequence[object]) -> bytes:
    want = PYTHON_TYPES.get(kind, int)
    odd = next((item for item in items if type(item) is not want), None)
    if odd is not None or None in items:
        _fail(key, f"{_shown(odd)} is {type(odd).__name__}, but {kind} stores {want.__name__}")
    if kind == "string":
        return b"".join(_encode_string(key, str(item)) for item in items)
    return _encode_numbers(key, kind, items)


def _encode_numbers(key: str, kind: str, items: Sequence[object]) -> bytes:
    code = NUMBERS[NUMBER_IDS[kind]][1]
    try:
        return struct.pack(f"<{len(items)}{code}", *items)
    except (struct.error, OverflowError):
        odd = next(item for item in items if not _fits(code, item))
        _fail(key, f"{_shown(odd)} does not fit {kind}")


def _fits(code: str, item: object) -> bool:
    try:
        return bool(struct.pack(f"<{code}", item))
    except (struct.error, OverflowError):
        return False


def _encode_string(key: str, value: str) -> bytes:
    try:
        data = value.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError as error:
        _fail(key, f"{value[error.start : error.start + 8]!r} contains a lone surrogate that encodes no byte")
    if len(data) > MAX_STRING_BYTES:
        _fail(key, f"a string of {len(data)} bytes; at most {MAX_STRING_BYTES} are allowed")
    return U64.pack(len(data)) + data


def _shown(value: object) -> str:
    """A value as errors show it, shortened. Python does not print an int of more than 4300 digits."""
    if isinstance(value, int) and value.bit_length() > 128:
        return f"an integer of {value.bit_length()} bits"
    return f"{value!r:.60}"


def _fail(key: str, message: str) -> NoReturn:
    raise format_error("", f"{key}: {message}", key=key)
