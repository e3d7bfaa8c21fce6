"""Sections of the WASM kernels: JSON data that an executor runs (web/wasm_executor.js).

kind       "load", "allocate" or "program"; `name` serves messages only
buffers    [{"number", "name", "bytes", "data": base64 or absent, "addresses": {"each", "fields"} or absent}]
           A buffer is initialised with zeros or with `data`: records of `each` bytes with addresses at the
           byte offsets `fields`. An address has 64 bits: a buffer number in the high half, an offset in the
           low half; 0 means absent. Buffer numbers begin at 1 and are never reused; the executor replaces
           each address by an address in WASM memory.
commands   in a load section: [form, weight, buffer number]. Forms: "floats" is float32; "rows" blocks as in
           the file; "panels" packed panels; "gated" alternating panels of both halves of the rows. A weight
           is {"name", "type", "stored": {"id", "block", "bytes"} of the weight's type and of the type in the
           file, "shape": [stack, rows, cols], "parts": [[source, offset, bytes] or ["inline", base64,
           bytes], ...], "ops": [[load op, argument, ...]]}
adds       of an allocate section: true if its groups are added to those allocated before
program    number of the buffer with the program's record
scratch    offsets of two fields of that record, the address and the bytes of the scratch memory; the
           executor gets the size from the kernels and fills in both
step_bytes size of a step
result     {"word", "each", "bytes"}: `read` returns step[word] * each bytes, at most `bytes`
ring       maximum number of steps between `run` and `read`
"""

from __future__ import annotations

import base64
import ctypes
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

Json = dict[str, Any]
OFFSET_BITS = 32
ADDRESSES = frozenset({"at", "table", "ops", "scratch"})  # record fields that hold an address


def address(number: int, offset: int = 0) -> int:
    """Address of a byte in a numbered buffer."""
    return number << OFFSET_BITS | offset


def address_fields(record: type[ctypes.Structure], at: int = 0) -> Iterator[int]:
    """Byte offsets of the address fields of a record that begins at `at`."""
    for name, kind, *_ in record._fields_:
        start = at + getattr(record, name).offset
        element: Any = getattr(kind, "_type_", kind) if issubclass(kind, ctypes.Array) else kind
        starts = range(start, start + ctypes.sizeof(kind), ctypes.sizeof(element))
        if issubclass(element, ctypes.Structure):
            for each in starts:
                yield from address_fields(element, each)
        elif name in ADDRESSES:
            yield from starts


@dataclass(slots=True)
class Section:
    """A section under construction; `facts` are the fields of a program section."""

    kind: str
    name: str
    buffers: list[Json] = field(default_factory=list[Json])
    commands: list[tuple[str, Json, int]] = field(default_factory=list[tuple[str, Json, int]])
    facts: Json = field(default_factory=dict[str, Any])

    def add(self, number: int, name: str, n_bytes: int) -> int:
        """Adds a zeroed buffer. Returns its number."""
        self.buffers.append({"number": number, "name": name, "bytes": n_bytes})
        return number

    def add_records(self, number: int, name: str, records: ctypes.Array[Any] | ctypes.Structure) -> int:
        """Adds a buffer that holds one record or an array of records. Returns its number."""
        kind: Any = getattr(records, "_type_", type(records))
        addresses = {"each": ctypes.sizeof(kind), "fields": list(address_fields(kind))}
        self.add(number, name, ctypes.sizeof(records))
        data = base64.b64encode(bytes(records)).decode("ascii")
        self.buffers[-1] |= {"data": data, "addresses": addresses}
        return number

    def json(self) -> Json:
        """The section as JSON data; the round trip through text fails for anything but plain data."""
        data = asdict(self)
        return json.loads(json.dumps(data | data.pop("facts")))
