"""Sections of the WASM kernels: plain data, ready for JSON, that an executor runs (web/wasm_executor.js).

kind       "load", "allocate" or "program"; `name` is for people
buffers    [{"number", "name", "bytes", "data": base64 or absent, "addresses": {"each", "fields"} or absent}]
           They begin zeroed, or with `data`; that consists of records of `each` bytes with addresses at
           `fields`. An address is 64 bits: the number of a buffer and, in the low half, an offset in it;
           0 is none. Numbers begin at 1 and never come again; the executor puts real addresses there.
commands   of a load section: [form, weight, number of a buffer]; the form is "floats", "rows", "panels" or
           "gated": float32; rows of blocks as in the file; panels; panels of both halves of the rows in
           turns. A weight is {"name", "type", "stored": {"id", "block", "bytes"} of its own type and the
           stored one, "shape": [stack, rows, cols], "parts": [[source, offset, bytes] or ["inline", base64,
           bytes], ...], "ops": [[load op, argument, ...]]}
program    the number of the buffer with the program's record. Its `scratch` is at two of its fields, an
           address and a number of bytes; the executor asks the kernels how many, and fills both in.
step_bytes what a step has
result     {"word", "each", "bytes"}: `read` gives step[word] * each bytes, of `bytes` at most
ring       how many steps may be between `run` and `read`
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
ADDRESSES = frozenset({"at", "table", "ops", "scratch"})  # fields of the records that hold them


def address(number: int, offset: int = 0) -> int:
    """A place in a buffer."""
    return number << OFFSET_BITS | offset


def address_fields(record: type[ctypes.Structure], at: int = 0) -> Iterator[int]:
    """Where a record, which begins at `at`, holds addresses."""
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
    """One section under construction. `facts` are those of a program."""

    kind: str
    name: str
    buffers: list[Json] = field(default_factory=list[Json])
    commands: list[tuple[str, Json, int]] = field(default_factory=list[tuple[str, Json, int]])
    facts: Json = field(default_factory=dict[str, Any])

    def add(self, number: int, name: str, n_bytes: int) -> int:
        """A buffer of zeros. Returns its number."""
        self.buffers.append({"number": number, "name": name, "bytes": n_bytes})
        return number

    def add_records(self, number: int, name: str, records: ctypes.Array[Any] | ctypes.Structure) -> int:
        """A buffer with records, one or more of a kind."""
        kind: Any = getattr(records, "_type_", type(records))
        addresses = {"each": ctypes.sizeof(kind), "fields": list(address_fields(kind))}
        self.add(number, name, ctypes.sizeof(records))
        data = base64.b64encode(bytes(records)).decode("ascii")
        self.buffers[-1] |= {"data": data, "addresses": addresses}
        return number

    def json(self) -> Json:
        """The section as JSON data, after a round trip, so that nothing but data can pass."""
        data = asdict(self)
        return json.loads(json.dumps(data | data.pop("facts")))
