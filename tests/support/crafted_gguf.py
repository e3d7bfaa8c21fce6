"""GGUF files written byte by byte, so that a test can damage one field."""

from __future__ import annotations

import struct

from camelid.formats.gguf import Gguf, read_gguf

UINT8, UINT32, INT32, FLOAT32, BOOL, STRING, ARRAY, UINT64 = 0, 4, 5, 6, 7, 8, 9, 10
F32, Q8_0, I8 = 0, 8, 24


def u32(*values: int) -> bytes:
    return struct.pack(f"<{len(values)}I", *values)


def u64(*values: int) -> bytes:
    return struct.pack(f"<{len(values)}Q", *values)


def text(data: bytes) -> bytes:
    return u64(len(data)) + data


def entry(key: bytes, type_id: int, value: bytes) -> bytes:
    return text(key) + u32(type_id) + value


def array(type_id: int, n: int, items: bytes = b"") -> bytes:
    return u32(type_id) + u64(n) + items


def tensor(name: bytes, *ne: int, type_id: int = F32, offset: int = 0, n_dims: int | None = None) -> bytes:
    return text(name) + u32(len(ne) if n_dims is None else n_dims) + u64(*ne) + u32(type_id) + u64(offset)


def file(entries: list[bytes], tensors: list[bytes], data: bytes = b"", **counts: int) -> bytes:
    n_tensors, n_entries = counts.get("n_tensors", len(tensors)), counts.get("n_entries", len(entries))
    head = (
        b"GGUF" + u32(counts.get("version", 3)) + u64(n_tensors, n_entries) + b"".join([*entries, *tensors])
    )
    return head + bytes(-len(head) % 32) + data


def parse(data: bytes, size: int | None = None) -> Gguf:
    """Parses `data` as the start of a file of `size` bytes; all later bytes are zeros."""
    size = len(data) if size is None else size
    steps = read_gguf(size, path="m.gguf")
    try:
        offset, length = next(steps)
        while True:
            assert 0 <= offset <= offset + length <= size
            offset, length = steps.send(data[offset : offset + length].ljust(length, b"\0"))
    except StopIteration as stop:
        return stop.value


GOOD = file(
    [
        entry(b"general.architecture", STRING, text(b"llama")),
        entry(b"general.alignment", UINT32, u32(32)),
        entry(b"x.words", ARRAY, array(STRING, 3, text(b"") + text(b"one") + text("två".encode()))),
        entry(b"x.numbers", ARRAY, array(FLOAT32, 2, bytes(8))),
        entry(b"x.flag", BOOL, b"\1"),
    ],
    [tensor(b"a", 2, 3), tensor(b"b", 32, 2, type_id=Q8_0, offset=32)],
    bytes(32 + 68),
)
