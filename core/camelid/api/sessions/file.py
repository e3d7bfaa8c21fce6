"""Session files: a conversation and its state rows, which any backend can restore.

    magic     8 bytes   "CAMELID" and 0x1A
    version   u32       1
    length    u32       bytes of the header
    digest    32 bytes  SHA-256 of the header
    header    JSON      the fields of `SavedSession`, n_rows, and a `SavedGroup` for each state group
    rows      bytes     the units of each group, in the header's order
    digest    32 bytes  SHA-256 of the rows

Numbers are little-endian. A unit is the result of `Backend.read_state`: by layer, by tensor, rows in GGUF's
block layout of the group's kv_type, keys after RoPE. `encode_session` yields bytes and the readers request
byte ranges, so that a path, a download and a `File` in a page share one implementation.
"""

from __future__ import annotations

import hashlib
import json
import re
import secrets
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from os import fsync
from os.path import realpath
from pathlib import Path
from typing import Any, cast

from camelid.engine.adapters import NO_ADAPTER, RowKeys
from camelid.engine.state_transfer import ExportedState
from camelid.errors import CamelidError, ModelFormatError, RequestError, UnsupportedModelError, shown
from camelid.formats.json_text import parse_object
from camelid.formats.quants import row_bytes
from camelid.formats.settings import Config
from camelid.formats.source import Ask, format_error, located
from camelid.plan.plan import StateSpec
from camelid.requests.transcript import Segment, Transcript, transcript_ids

PAGED = ("paged", "window")
KINDS = (*PAGED, "recurrent")  # groups that a file must have for a sequence to continue
MAGIC, VERSION = b"CAMELID\x1a", 1
HEAD = struct.Struct("<8sII32s")
DIGEST_BYTES = 32
MAX_HEADER_BYTES = 16 << 20  # of JSON: over a million tokens
MAX_ROWS = 1 << 30
MAX_UNIT_BYTES = 1 << 30
MAX_TOKEN_ID = (1 << 32) - 1
ADAPTER_KEY = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedSession:
    """A session without its rows.

    `n_drawn` counts the tokens of its answers, `n_forgotten` the oldest messages that the model no longer
    reads. `row_keys` are those of the adapter that computed the rows; earlier versions have none.
    """

    id: str
    model: str
    fingerprint: str
    messages: Sequence[Mapping[str, object]]
    transcript: Transcript
    options: Mapping[str, object]
    n_drawn: int
    n_forgotten: int
    camelid: str
    row_keys: RowKeys = NO_ADAPTER


@dataclass(frozen=True, slots=True)
class SavedGroup:
    """Units of one state group in a file. `layout` is that of `group_layout`."""

    layout: Mapping[str, object]
    first_unit: int
    n_units: int
    unit_bytes: int


@dataclass(frozen=True, slots=True)
class SessionHeader:
    """A file's header. `offset` is the first byte of the rows."""

    saved: SavedSession
    n_rows: int
    groups: Mapping[str, SavedGroup]
    offset: int
    path: str

    @property
    def row_bytes(self) -> int:
        """Bytes of all rows."""
        return sum(group.n_units * group.unit_bytes for group in self.groups.values())


def group_layout(state: StateSpec) -> dict[str, object]:
    """The facts that give a group's bytes their meaning, as JSON values."""
    return {
        "kind": state.kind,
        "layers": list(state.layers),
        "tensors": [list(tensor) for tensor in state.tensors],
        "unit_rows": state.unit_rows,
        "kv_type": state.kv_type,
        "window": state.window,
    }


def rows_mismatch(header: SessionHeader, states: Sequence[StateSpec]) -> str:
    """The reason why a model with these states cannot use the file's rows; "" if it can."""
    n_tokens = len(transcript_ids(header.saved.transcript))
    if header.n_rows > n_tokens:
        return f"the file has {header.n_rows} rows for {n_tokens} tokens"
    by_name = {state.name: state for state in states}
    missing = [state.name for state in states if state.kind in KINDS and state.name not in header.groups]
    if header.n_rows and missing:
        return f"the file has no group {missing[0]!r}"
    for name, group in header.groups.items():
        if name not in by_name:
            return f"the file has a group {name!r:.60}, and this model has no such group"
        if reason := _group_mismatch(header.n_rows, group, by_name[name]):
            return f"group {name}: {reason}"
    return ""


def _group_mismatch(n_rows: int, group: SavedGroup, state: StateSpec) -> str:
    for field, want in group_layout(state).items():
        if group.layout.get(field) != want:
            return f"{field} is {group.layout.get(field)!r:.60}, expected {want!r:.60}"
    if group.unit_bytes != state.unit_bytes:
        return f"a unit has {group.unit_bytes} bytes, expected {state.unit_bytes}"
    end = -(-n_rows // state.unit_rows) if state.kind in PAGED else 1
    is_complete = group.first_unit + group.n_units == end and (state.kind == "window" or not group.first_unit)
    return "" if is_complete else f"{group.n_units} units from {group.first_unit} on are not {n_rows} rows"


def encode_session(
    saved: SavedSession, states: Sequence[StateSpec], exported: ExportedState
) -> Iterator[bytes]:
    """The file's bytes, a unit at a time. Raises RequestError if the conversation cannot be written."""
    header = _encode_header(_header_values(saved, states, exported))
    yield HEAD.pack(MAGIC, VERSION, len(header), hashlib.sha256(header).digest()) + header
    digest = hashlib.sha256()
    by_name = {state.name: state for state in states}
    for name, units in exported.units.items():
        for i, unit in enumerate(units):
            data = _zero_foreign_rows(unit, by_name[name], exported.n_rows) if i == len(units) - 1 else unit
            digest.update(data)
            yield data
    yield digest.digest()


def _zero_foreign_rows(unit: bytes, state: StateSpec, n_rows: int) -> bytes:
    """The last unit with zeros behind the sequence's rows: a page may hold rows of an earlier sequence."""
    n = n_rows % state.unit_rows
    if state.kind not in PAGED or not n:
        return unit
    data = bytearray(unit)
    at = 0
    for _ in state.layers:
        for _, cols in state.tensors:
            size = row_bytes(state.kv_type, cols)
            data[at + n * size : at + state.unit_rows * size] = bytes((state.unit_rows - n) * size)
            at += state.unit_rows * size
    return bytes(data)


def _encode_header(header: Mapping[str, object]) -> bytes:
    """The header as JSON text that `read_header` accepts."""
    try:
        data = json.dumps(header, ensure_ascii=False, allow_nan=False).encode()
        parse_object(data, path="", what="header")
    except (CamelidError, TypeError, ValueError, RecursionError) as error:
        raise RequestError(f"this session cannot be written as JSON: {error}", field="session") from None
    if len(data) > MAX_HEADER_BYTES:
        raise RequestError(
            f"this session has {len(data)} bytes besides its rows, expected at most {MAX_HEADER_BYTES}",
            field="session",
        )
    return data


def _header_values(
    saved: SavedSession, states: Sequence[StateSpec], exported: ExportedState
) -> dict[str, object]:
    by_name = {state.name: state for state in states}
    groups = {
        name: {
            "form": group_layout(by_name[name]),
            "first_unit": exported.first_unit.get(name, 0),
            "n_units": len(units),
            "unit_bytes": len(units[0]) if units else by_name[name].unit_bytes,
        }
        for name, units in exported.units.items()
    }
    return {
        "camelid": saved.camelid,
        "id": saved.id,
        "model": saved.model,
        "fingerprint": saved.fingerprint,
        "messages": list(saved.messages),
        "past": [_segment_values(segment) for segment in saved.transcript],
        "options": dict(saved.options),
        "drawn": saved.n_drawn,
        "forgotten": saved.n_forgotten,
        "n_rows": exported.n_rows,
        "groups": groups,
        **_adapter_values(saved.row_keys),
    }


def _adapter_values(keys: RowKeys) -> dict[str, object]:
    """The adapter's key in hex, and the first row on which it acts if it was activated."""
    if not keys.adapter:
        return {}
    first = {} if keys.first is None else {"adapter_from": keys.first}
    return {"adapter": keys.adapter.hex(), **first}


def _segment_values(segment: Segment) -> dict[str, object]:
    return {
        "text": segment.text,
        "token_ids": list(segment.token_ids),
        "trusted": [offset for run in segment.trusted for offset in run],
        "is_answer": segment.is_answer,
        "tail": segment.tail,
    }


def read_header(size: int, path: str) -> Ask[SessionHeader]:
    """Reads the header and checks its digest and the file's size.

    Raises ModelFormatError for any file but a complete session file, UnsupportedModelError for a newer
    version.
    """
    length, digest = yield from _read_fixed_part(size, path)
    data = yield from _read_exactly(HEAD.size, length, path)
    if hashlib.sha256(data).digest() != digest:
        raise format_error(path, "the header is damaged: its checksum differs; use another copy of the file")
    header = _parse_header(parse_object(data, path=path, what="header"), HEAD.size + length, path)
    want = header.offset + header.row_bytes + DIGEST_BYTES
    if size != want:
        raise format_error(
            path, f"the file has {size} bytes, expected {want} by its header; was it truncated?",
            got=size, want=want,
        )  # fmt: skip
    return header


def read_rows(header: SessionHeader) -> Ask[ExportedState]:
    """Reads the rows and checks their digest. Raises ModelFormatError if they are damaged."""
    at, digest = header.offset, hashlib.sha256()
    units: dict[str, list[bytes]] = {}
    for name, group in header.groups.items():
        units[name] = []
        for _ in range(group.n_units):
            unit = yield from _read_exactly(at, group.unit_bytes, header.path)
            digest.update(unit)
            units[name].append(unit)
            at += group.unit_bytes
    stored = yield from _read_exactly(at, DIGEST_BYTES, header.path)
    if stored != digest.digest():
        raise format_error(
            header.path, "the rows are damaged: their checksum differs; use another copy of the file"
        )
    first_units = {name: group.first_unit for name, group in header.groups.items()}
    return ExportedState(header.n_rows, units, first_units)


def _read_fixed_part(size: int, path: str) -> Ask[tuple[int, bytes]]:
    """The header's length and digest."""
    if size < HEAD.size:
        raise format_error(path, f"not a session file: it has {size} bytes", got=size)
    data = yield from _read_exactly(0, HEAD.size, path)
    magic, version, length, digest = HEAD.unpack(data)
    if magic != MAGIC:
        raise format_error(path, f"not a session file: it begins with {magic!r}, not {MAGIC!r}", offset=0)
    if version != VERSION:
        raise UnsupportedModelError(
            located(path, f"session file of version {version}, expected {VERSION}; was it saved by a newer "
                    "Camelid?"),
            kind="session file version", name=str(version), known=(VERSION,),
        )  # fmt: skip
    if length > min(MAX_HEADER_BYTES, size - HEAD.size):
        raise format_error(
            path, f"a header of {length} bytes in a file of {size} bytes; was it truncated?", got=length
        )
    return length, digest


def _read_exactly(offset: int, length: int, path: str) -> Ask[bytes]:
    data = yield offset, length
    if len(data) != length:
        raise format_error(
            path, f"a read of {length} bytes at {offset} returned {len(data)}; has the file changed since?",
            offset=offset,
        )  # fmt: skip
    return data


def _parse_header(values: dict[str, Any], offset: int, path: str) -> SessionHeader:
    header = Config(values, path)
    groups = header.section("groups")
    saved = SavedSession(
        id=header.text("id"),
        model=header.text("model"),
        fingerprint=header.text("fingerprint"),
        messages=[_object(message, "messages", path) for message in header.get_list("messages")],
        transcript=tuple(_segment(_object(item, "past", path), path) for item in header.get_list("past")),
        options=header.get_dict("options"),
        n_drawn=header.count("drawn", least=0),
        n_forgotten=header.count("forgotten", least=0),
        camelid=header.text("camelid"),
        row_keys=_row_keys(header),
    )
    saved_groups = {name: _group(groups.section(name)) for name in groups.values}
    n_rows = header.count("n_rows", least=0, most=MAX_ROWS)
    return SessionHeader(saved, n_rows, saved_groups, offset, path)


def _row_keys(header: Config) -> RowKeys:
    if "adapter" not in header.values:
        return NO_ADAPTER
    key = header.text("adapter")
    if not ADAPTER_KEY.fullmatch(key):
        raise format_error(header.path, f"adapter is {shown(key)}, expected 64 hex digits", key="adapter")
    has_first = "adapter_from" in header.values
    return RowKeys(bytes.fromhex(key), header.count("adapter_from", least=0) if has_first else None)


def _object(value: object, what: str, path: str) -> dict[str, Any]:
    if isinstance(value, dict):
        return cast("dict[str, Any]", value)
    raise format_error(path, f"{what} holds {type(value).__name__}, expected objects", key=what)


def _segment(values: dict[str, Any], path: str) -> Segment:
    segment = Config(values, path, "past.")
    offsets = segment.counts("trusted")
    if len(offsets) % 2 or any(a >= b for a, b in pairwise(offsets)):
        raise format_error(path, "past.trusted is not a list of sorted runs", key="past.trusted")
    return Segment(
        segment.text("text"),
        tuple(segment.counts("token_ids", most=MAX_TOKEN_ID)),
        tuple(zip(offsets[::2], offsets[1::2], strict=True)),
        segment.flag("is_answer"),
        segment.text("tail"),
    )


def _group(group: Config) -> SavedGroup:
    return SavedGroup(
        group.get_dict("form"),
        group.count("first_unit", least=0, most=MAX_ROWS),
        group.count("n_units", least=0, most=MAX_ROWS),
        group.count("unit_bytes", most=MAX_UNIT_BYTES),
    )


def write_atomically(path: Path, chunks: Iterable[bytes]) -> None:
    """Writes a file of these chunks completely, or leaves the old file unchanged. Symbolic links stay.

    Raises ModelFormatError if the file cannot be written.
    """
    try:
        target = Path(realpath(path))
        part = target.with_name(f".{secrets.token_hex(8)}.part")
        file = part.open("xb")
    except (OSError, ValueError) as error:  # ValueError: a path without a name, or with a NUL byte
        raise _unwritable(path, error) from error
    try:
        with file:
            file.writelines(chunks)
            file.flush()
            fsync(file.fileno())
        part.replace(target)
    except OSError as error:
        raise _unwritable(path, error) from error
    finally:
        part.unlink(missing_ok=True)


def _unwritable(path: Path, error: OSError | ValueError) -> ModelFormatError:
    reason = getattr(error, "strerror", None) or error
    return format_error(str(path), f"cannot be written: {reason}; no partial file remains")
