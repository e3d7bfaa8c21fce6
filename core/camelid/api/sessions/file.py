"""A conversation and the state rows computed for it, as one file that any backend can go on from.

    magic     8 bytes   "CAMELID" and 0x1A
    version   u32       1
    length    u32       bytes of the header
    digest    32 bytes  SHA-256 of the header
    header    JSON      what is below in `SavedSession`, and each group of rows
    rows      bytes     the units of each group in the header's order
    digest    32 bytes  SHA-256 of the rows

Numbers are little-endian. A unit is what `Backend.read_state` gives: by layer, by tensor, rows in GGUF's
block layout of the group's kv_type, keys after RoPE. `write` yields bytes and the readers ask for byte
ranges, so that a path, a download and a `File` in a page take the same road.
"""

from __future__ import annotations

import hashlib
import json
import secrets
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from os import fsync
from os.path import realpath
from pathlib import Path
from typing import Any, cast

from camelid.engine.state_transfer import ExportedState
from camelid.errors import CamelidError, ModelFormatError, RequestError, UnsupportedModelError
from camelid.formats.json_text import parse_object
from camelid.formats.quants import row_bytes
from camelid.formats.settings import Config
from camelid.formats.source import Ask, format_error, located
from camelid.plan.plan import StateSpec
from camelid.requests.rendering import Past, Piece, ids_of

PAGED = ("paged", "window")
KINDS = (*PAGED, "recurrent")  # what a sequence needs in order to go on
MAGIC, VERSION = b"CAMELID\x1a", 1
HEAD = struct.Struct("<8sII32s")
DIGEST_BYTES = 32
MAX_HEADER_BYTES = 16 << 20  # of JSON: over a million tokens
MAX_ROWS = 1 << 30
MAX_UNIT_BYTES = 1 << 30
MAX_TOKEN_ID = (1 << 32) - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedSession:
    """What a session is, without its rows: `drawn` tokens, and so many messages `forgotten`."""

    id: str
    model: str
    fingerprint: str
    messages: Sequence[Mapping[str, object]]
    past: Past
    options: Mapping[str, object]
    drawn: int
    forgotten: int
    camelid: str


@dataclass(frozen=True, slots=True)
class SavedGroup:
    """Rows of one state group in a file: what a unit is, and which units there are."""

    form: Mapping[str, object]
    first_unit: int
    n_units: int
    unit_bytes: int


@dataclass(frozen=True, slots=True)
class SessionHeader:
    """A file's header. `offset` is where its rows begin."""

    saved: SavedSession
    n_rows: int
    groups: Mapping[str, SavedGroup]
    offset: int
    path: str

    @property
    def row_bytes(self) -> int:
        """Bytes of all rows."""
        return sum(group.n_units * group.unit_bytes for group in self.groups.values())


def form_of(state: StateSpec) -> dict[str, object]:
    """What decides the meaning of a group's bytes, as JSON has it."""
    return {
        "kind": state.kind,
        "layers": list(state.layers),
        "tensors": [list(tensor) for tensor in state.tensors],
        "unit_rows": state.unit_rows,
        "kv_type": state.kv_type,
        "window": state.window,
    }


def misfit(head: SessionHeader, states: Sequence[StateSpec]) -> str:
    """Why a model with these states cannot take the file's rows; "" if it can."""
    if head.n_rows > len(ids_of(head.saved.past)):
        return f"there are {head.n_rows} of them, and {len(ids_of(head.saved.past))} tokens"
    by_name = {state.name: state for state in states}
    missing = [state.name for state in states if state.kind in KINDS and state.name not in head.groups]
    if head.n_rows and missing:
        return f"they have no group {missing[0]!r}"
    for name, group in head.groups.items():
        if name not in by_name:
            return f"they have a group {name!r:.60}, and this model has none"
        if reason := _misfit(head.n_rows, group, by_name[name]):
            return f"in the group {name}, {reason}"
    return ""


def _misfit(n_rows: int, group: SavedGroup, state: StateSpec) -> str:
    for word, here in form_of(state).items():
        if group.form.get(word) != here:
            return f"{word} is {group.form.get(word)!r:.60}, and here it is {here!r:.60}"
    if group.unit_bytes != state.unit_bytes:
        return f"a unit has {group.unit_bytes} bytes, and here it has {state.unit_bytes}"
    end = -(-n_rows // state.unit_rows) if state.kind in PAGED else 1
    is_whole = group.first_unit + group.n_units == end and (state.kind == "window" or not group.first_unit)
    return "" if is_whole else f"units {group.first_unit} and {group.n_units} more are not {n_rows} rows"


def write(saved: SavedSession, states: Sequence[StateSpec], exported: ExportedState) -> Iterator[bytes]:
    """The file's bytes, a unit at a time. RequestError if the conversation cannot be written."""
    header = _encoded(_header(saved, states, exported))
    yield HEAD.pack(MAGIC, VERSION, len(header), hashlib.sha256(header).digest()) + header
    digest = hashlib.sha256()
    by_name = {state.name: state for state in states}
    for name, units in exported.units.items():
        for i, unit in enumerate(units):
            data = _own_rows(unit, by_name[name], exported.n_rows) if i == len(units) - 1 else unit
            digest.update(data)
            yield data
    yield digest.digest()


def _own_rows(unit: bytes, state: StateSpec, n_rows: int) -> bytes:
    """The last unit with zeros behind the sequence's rows: a page may hold what another one left there."""
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


def _encoded(header: Mapping[str, object]) -> bytes:
    """The header as JSON that `read_head` will read."""
    try:
        data = json.dumps(header, ensure_ascii=False, allow_nan=False).encode()
        parse_object(data, path="", what="header")
    except (CamelidError, TypeError, ValueError, RecursionError) as error:
        raise RequestError(f"this session cannot be written as JSON: {error}", field="session") from None
    if len(data) > MAX_HEADER_BYTES:
        raise RequestError(
            f"this session takes {len(data)} bytes besides its rows, expected at most {MAX_HEADER_BYTES}",
            field="session",
        )
    return data


def _header(saved: SavedSession, states: Sequence[StateSpec], exported: ExportedState) -> dict[str, object]:
    by_name = {state.name: state for state in states}
    groups = {
        name: {
            "form": form_of(by_name[name]),
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
        "past": [_piece_words(piece) for piece in saved.past],
        "options": dict(saved.options),
        "drawn": saved.drawn,
        "forgotten": saved.forgotten,
        "n_rows": exported.n_rows,
        "groups": groups,
    }


def _piece_words(piece: Piece) -> dict[str, object]:
    return {
        "text": piece.text,
        "token_ids": list(piece.token_ids),
        "trusted": [end for run in piece.trusted for end in run],
        "is_answer": piece.is_answer,
        "tail": piece.tail,
    }


def read_head(size: int, path: str) -> Ask[SessionHeader]:
    """The header, checked against its digest and the file's size.

    Raises ModelFormatError for anything but a whole session file, UnsupportedModelError for a newer version.
    """
    length, digest = yield from _opening(size, path)
    header = yield from _asked(HEAD.size, length, path)
    if hashlib.sha256(header).digest() != digest:
        raise format_error(path, "the header is damaged: its checksum differs; use another copy of the file")
    head = _head(parse_object(header, path=path, what="header"), HEAD.size + length, path)
    want = head.offset + head.row_bytes + DIGEST_BYTES
    if size != want:
        raise format_error(
            path, f"the file has {size} bytes, but its header speaks of {want}; was it cut short?",
            got=size, want=want,
        )  # fmt: skip
    return head


def read_rows(head: SessionHeader) -> Ask[ExportedState]:
    """The rows, checked against their digest. ModelFormatError if they are damaged."""
    at, digest = head.offset, hashlib.sha256()
    units: dict[str, list[bytes]] = {}
    for name, group in head.groups.items():
        units[name] = []
        for _ in range(group.n_units):
            unit = yield from _asked(at, group.unit_bytes, head.path)
            digest.update(unit)
            units[name].append(unit)
            at += group.unit_bytes
    stored = yield from _asked(at, DIGEST_BYTES, head.path)
    if stored != digest.digest():
        raise format_error(
            head.path, "the rows are damaged: their checksum differs; use another copy of the file"
        )
    return ExportedState(head.n_rows, units, {name: group.first_unit for name, group in head.groups.items()})


def _opening(size: int, path: str) -> Ask[tuple[int, bytes]]:
    """The header's length and digest."""
    if size < HEAD.size:
        raise format_error(path, f"not a session file: it has {size} bytes", got=size)
    data = yield from _asked(0, HEAD.size, path)
    magic, version, length, digest = HEAD.unpack(data)
    if magic != MAGIC:
        raise format_error(path, f"not a session file: it begins with {magic!r}, not {MAGIC!r}", offset=0)
    if version != VERSION:
        raise UnsupportedModelError(
            located(path, f"session files of version {version} are not known, only {VERSION}; was it saved "
                    "by a newer Camelid?"),
            kind="session file version", name=str(version), known=(VERSION,),
        )  # fmt: skip
    if length > min(MAX_HEADER_BYTES, size - HEAD.size):
        raise format_error(
            path, f"a header of {length} bytes in a file of {size}; was it cut short?", got=length
        )
    return length, digest


def _asked(offset: int, length: int, path: str) -> Ask[bytes]:
    data = yield offset, length
    if len(data) != length:
        raise format_error(
            path, f"a read of {length} bytes at {offset} gave {len(data)}; did the file change meanwhile?",
            offset=offset,
        )  # fmt: skip
    return data


def _head(values: dict[str, Any], offset: int, path: str) -> SessionHeader:
    header = Config(values, path)
    groups = header.section("groups")
    saved = SavedSession(
        id=header.text("id"),
        model=header.text("model"),
        fingerprint=header.text("fingerprint"),
        messages=[_object(message, "messages", path) for message in header.get_list("messages")],
        past=tuple(_piece(_object(piece, "past", path), path) for piece in header.get_list("past")),
        options=header.get_dict("options"),
        drawn=header.count("drawn", least=0),
        forgotten=header.count("forgotten", least=0),
        camelid=header.text("camelid"),
    )
    made = {name: _group(groups.section(name)) for name in groups.values}
    return SessionHeader(saved, header.count("n_rows", least=0, most=MAX_ROWS), made, offset, path)


def _object(value: object, what: str, path: str) -> dict[str, Any]:
    if isinstance(value, dict):
        return cast("dict[str, Any]", value)
    raise format_error(path, f"{what} holds {type(value).__name__}, but objects are expected", key=what)


def _piece(values: dict[str, Any], path: str) -> Piece:
    piece = Config(values, path, "past.")
    ends = piece.counts("trusted")
    if len(ends) % 2 or any(a >= b for a, b in pairwise(ends)):
        raise format_error(path, "past.trusted is not a list of sorted runs", key="past.trusted")
    return Piece(
        piece.text("text"),
        tuple(piece.counts("token_ids", most=MAX_TOKEN_ID)),
        tuple(zip(ends[::2], ends[1::2], strict=True)),
        piece.flag("is_answer"),
        piece.text("tail"),
    )


def _group(group: Config) -> SavedGroup:
    return SavedGroup(
        group.get_dict("form"),
        group.count("first_unit", least=0, most=MAX_ROWS),
        group.count("n_units", least=0, most=MAX_ROWS),
        group.count("unit_bytes", most=MAX_UNIT_BYTES),
    )


def write_whole(path: Path, chunks: Iterable[bytes]) -> None:
    """A file of these chunks: whole, or as it was before. Links stay. ModelFormatError if it cannot be
    written."""
    try:
        target = Path(realpath(path))
        part = target.with_name(f".{secrets.token_hex(8)}.part")
        file = part.open("xb")
    except (OSError, ValueError) as error:  # ValueError: a path without a name, or with a zero in it
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
    return format_error(str(path), f"cannot be written: {reason}; nothing was left behind")
