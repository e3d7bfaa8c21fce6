"""Session files: written data is read back, damage of any kind is reported, inconsistent files are
refused.
"""

from __future__ import annotations

import hashlib
import json
import random
import struct
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from camelid.api.sessions.file import (
    HEAD,
    SavedSession,
    SessionHeader,
    encode_session,
    read_header,
    read_rows,
    rows_mismatch,
    write_atomically,
)
from camelid.engine.state_transfer import ExportedState
from camelid.errors import CamelidError, ModelFormatError, RequestError, UnsupportedModelError
from camelid.formats.source import drive
from camelid.plan.plan import StateSpec
from camelid.requests.transcript import Segment

STATES = (
    StateSpec("kv", "paged", (0, 2), (("k", 32), ("v", 64)), 4, "q8_0"),
    StateSpec("kv_tail", "window", (0, 2), (("k", 32), ("v", 64)), 4, "f16", 8),
    StateSpec("slots", "recurrent", (1,), (("s", 5),), 1),
    StateSpec("tokens", "ring", (), (("id", 1),), 128),
)
N_ROWS = 18
SAVED = SavedSession(
    id="s1",
    model="m.gguf",
    fingerprint="ab" * 32,
    messages=[{"role": "user", "content": "Hi 😀"}, {"role": "assistant", "content": "Ho", "tool_calls": []}],
    transcript=(
        Segment("<a>Hi", tuple(range(15)), ((0, 3),)),
        Segment("Ho", (7, 8, 9, 10), is_answer=True, tail="x"),
    ),
    options={"temperature": 0.5, "stop": ["a"], "seed": 2**63},
    n_drawn=4,
    n_forgotten=2,
    camelid="0.1.0",
)


def noise(state: StateSpec, n: int) -> list[bytes]:
    return [random.Random(f"{state.name}{i}").randbytes(state.unit_bytes) for i in range(n)]


EXPORTED = ExportedState(
    N_ROWS,
    {"kv": noise(STATES[0], 5), "kv_tail": noise(STATES[1], 3), "slots": noise(STATES[2], 1)},
    {"kv": 0, "kv_tail": 2, "slots": 0},
)
DATA = b"".join(encode_session(SAVED, STATES, EXPORTED))


def read(data: bytes) -> tuple[SessionHeader, ExportedState]:
    def answer(offset: int, length: int) -> bytes:
        assert length <= 1 << 20, "a read beyond the file's possible size"
        return data[offset : offset + length]

    head = drive(read_header(len(data), "f.camelid"), answer)
    return head, drive(read_rows(head), answer)


def header_of(data: bytes) -> dict[str, Any]:
    length = struct.unpack_from("<I", data, 12)[0]
    return json.loads(data[48 : 48 + length])


def with_header(header: dict[str, Any] | bytes, rows: bytes | None = None) -> bytes:
    """A file with this header and correct digests."""
    raw = header if isinstance(header, bytes) else json.dumps(header).encode()
    start = 48 + struct.unpack_from("<I", DATA, 12)[0]
    rest = DATA[start:] if rows is None else rows + hashlib.sha256(rows).digest()
    return struct.pack("<8sII32s", b"CAMELID\x1a", 1, len(raw), hashlib.sha256(raw).digest()) + raw + rest


def changed(path: str, value: object) -> bytes:
    """The file with one value of its header changed, at a path such as `a.b.0`."""
    header = header_of(DATA)
    *way, last = path.split(".")
    place: Any = header
    for step in way:
        place = place[int(step)] if step.isdigit() else place[step]
    place[last] = value
    return with_header(header)


def test_written_sessions_are_read_back() -> None:
    head, rows = read(DATA)
    assert head.saved == SAVED
    assert (rows.n_rows, rows.first_unit) == (EXPORTED.n_rows, EXPORTED.first_unit)
    assert rows.units["kv"][:4] == EXPORTED.units["kv"][:4] and rows.units["slots"] == EXPORTED.units["slots"]
    assert rows_mismatch(head, STATES) == ""
    assert b"".join(encode_session(head.saved, STATES, rows)) == DATA


def test_layout_is_as_documented() -> None:
    """Offsets computed from the module's table, not by its code."""
    magic, version, length = struct.unpack_from("<8sII", DATA)
    header = DATA[48 : 48 + length]
    assert (magic, version, DATA[16:48]) == (b"CAMELID\x1a", 1, hashlib.sha256(header).digest())
    rows = DATA[48 + length : -32]
    assert DATA[-32:] == hashlib.sha256(rows).digest()
    q8_0, f16 = 2 * 4 * (34 + 2 * 34), 2 * 4 * (32 + 64) * 2
    assert len(rows) == 5 * q8_0 + 3 * f16 + 5 * 4
    assert list(json.loads(header)["groups"]) == ["kv", "kv_tail", "slots"]


def test_rows_of_a_pages_previous_holder_are_not_written() -> None:
    """Rows 18 and 19 of the last page belong to its previous holder."""
    _, rows = read(DATA)
    unit, was = rows.units["kv"][-1], EXPORTED.units["kv"][-1]
    at = 0
    for size in (34, 68) * 2:  # k and v of two layers, 4 rows each
        assert unit[at : at + 2 * size] == was[at : at + 2 * size]
        assert unit[at + 2 * size : at + 4 * size] == bytes(2 * size)
        at += 4 * size
    assert at == len(unit)


def test_every_flipped_bit_is_detected() -> None:
    rng = random.Random(0)
    for at in [*range(48), *rng.sample(range(48, len(DATA)), 150), len(DATA) - 1]:
        broken = bytearray(DATA)
        broken[at] ^= 1 << rng.randrange(8)
        with pytest.raises(CamelidError) as caught:
            read(bytes(broken))
        assert isinstance(caught.value, ModelFormatError | UnsupportedModelError)


def test_every_truncation_is_reported() -> None:
    for size in [*range(60), *random.Random(1).sample(range(60, len(DATA)), 60), len(DATA) - 1]:
        with pytest.raises(ModelFormatError, match=r"truncated|not a session file"):
            read(DATA[:size])
    with pytest.raises(ModelFormatError, match="by its header"):
        read(DATA + b"x")


def without_first_page() -> bytes:
    """A file whose keys and values begin at the second page."""
    header = header_of(DATA)
    header["groups"]["kv"] |= {"first_unit": 1, "n_units": 4}
    rows = b"".join([*EXPORTED.units["kv"][1:], *EXPORTED.units["kv_tail"], *EXPORTED.units["slots"]])
    return with_header(header, rows)


def with_short_units() -> bytes:
    """A file whose recurrent slot is one value too short."""
    header = header_of(DATA)
    header["groups"]["slots"]["unit_bytes"] -= 4
    rows = b"".join([*EXPORTED.units["kv"], *EXPORTED.units["kv_tail"], EXPORTED.units["slots"][0][4:]])
    return with_header(header, rows)


# An inconsistent file with correct digests -> words of the message.
WRONG: dict[str, tuple[bytes, str]] = {
    "another file": (b"GGUF" + DATA[4:], "not a session file: it begins with b'GGUF"),
    "newer": (
        DATA[:8] + struct.pack("<I", 2) + DATA[12:],
        "version 2, expected 1; .*newer Camelid",
    ),
    "long header": (DATA[:12] + struct.pack("<I", 2**32 - 1) + DATA[16:], "header of 4294967295 bytes"),
    "no JSON": (with_header(b"{"), "header"),
    "a list": (with_header(b"[]"), "header"),
    "key twice": (with_header(b'{"id": "a", "id": "b"}'), "id"),
    "deep": (with_header(b'{"id": ' + b"[" * 99_999 + b"]" * 99_999 + b"}"), "deep|brackets|nest"),
    "no fingerprint": (changed("fingerprint", None), "fingerprint is missing"),
    "messages": (changed("messages", [1]), "messages holds int"),
    "ids": (changed("past.0.token_ids", [-1]), "token_ids"),
    "runs": (changed("past.0.trusted", [3, 1]), "sorted runs"),
    "empty run": (changed("past.0.trusted", [0, 2, 3, 3]), "sorted runs"),
    "odd runs": (changed("past.0.trusted", [3]), "sorted runs"),
    "units": (changed("groups.kv.n_units", 2**40), "n_units"),
    "more units": (changed("groups.kv.n_units", 6), "by its header"),
    "unit bytes": (changed("groups.kv.unit_bytes", 0), "unit_bytes"),
    "rows": (changed("n_rows", 1.5), "n_rows"),
}


@pytest.mark.parametrize("case", WRONG)
def test_inconsistent_files_are_refused_with_a_reason(case: str) -> None:
    data, words = WRONG[case]
    with pytest.raises(CamelidError, match=words) as caught:
        read(data)
    assert isinstance(caught.value, ModelFormatError | UnsupportedModelError)
    assert "f.camelid" in str(caught.value)


def swapped(name: str, **changes: Any) -> tuple[StateSpec, ...]:
    return tuple(replace(state, **changes) if state.name == name else state for state in STATES)


# States of the receiving model, or a changed file -> the reason why its rows cannot be used.
MISFITS: dict[str, tuple[tuple[StateSpec, ...], bytes, str]] = {
    "kv_type": (
        swapped("kv", kv_type="f16"),
        DATA,
        "group kv: kv_type is 'q8_0', expected 'f16'",
    ),
    "tail": (swapped("kv_tail", window=16), DATA, "group kv_tail: window is 8, expected 16"),
    "page": (swapped("kv", unit_rows=8), DATA, "unit_rows is 4, expected 8"),
    "layers": (swapped("kv", layers=(0,)), DATA, "layers"),
    "one tier": (STATES[:1] + STATES[2:], DATA, "a group 'kv_tail', and this model has no such group"),
    "rows": (STATES, changed("n_rows", 16), "5 units from 0 on are not 16 rows"),
    "many rows": (STATES, changed("n_rows", 20), "20 rows for 19 tokens"),
    "first": (STATES, changed("groups.kv.first_unit", 1), "5 units from 1 on are not 18 rows"),
    "no first": (STATES, without_first_page(), "4 units from 1 on are not 18 rows"),
    "short units": (STATES, with_short_units(), "a unit has 16 bytes, expected 20"),
    "window's first": (STATES, changed("groups.kv_tail.first_unit", 1), "3 units from 1 on"),
}


@pytest.mark.parametrize("case", MISFITS)
def test_rows_for_other_states_are_refused(case: str) -> None:
    states, data, words = MISFITS[case]
    assert words in rows_mismatch(read(data)[0], states)


def test_a_group_missing_in_the_file_is_reported() -> None:
    units = {name: units for name, units in EXPORTED.units.items() if name != "slots"}
    data = b"".join(encode_session(SAVED, STATES, replace(EXPORTED, units=units)))
    assert "slots" in rows_mismatch(read(data)[0], STATES)


BAD_SESSIONS: dict[str, dict[str, Any]] = {
    "no JSON": {"options": {"tools": object()}},
    "NaN": {"options": {"temperature": float("nan")}},
    "surrogate": {"messages": [{"role": "user", "content": "\ud800"}]},
    "deep": {"options": {"tools": json.loads("[" * 200 + "]" * 200)}},
    "large": {"messages": [{"role": "user", "content": "x" * (16 << 20)}]},
}


@pytest.mark.parametrize("case", BAD_SESSIONS)
def test_what_could_not_be_read_is_not_written(case: str) -> None:
    with pytest.raises(RequestError, match=r"this session (cannot be written as JSON|has \d+ bytes)"):
        next(encode_session(replace(SAVED, **BAD_SESSIONS[case]), STATES, EXPORTED))


def test_files_are_written_atomically(tmp_path: Path) -> None:
    target = tmp_path / "s.camelid"
    write_atomically(target, iter([b"ab", b"c"]))

    def breaks() -> Any:
        yield b"x"
        raise ModelFormatError("a: the device went away in the middle")

    with pytest.raises(ModelFormatError, match="went away"):
        write_atomically(target, breaks())
    assert target.read_bytes() == b"abc" and list(tmp_path.iterdir()) == [target]
    (link := tmp_path / "link").symlink_to(target)
    write_atomically(link, iter([b"abcd"]))
    assert (link.is_symlink(), target.read_bytes()) == (True, b"abcd")
    link.unlink()
    places = (tmp_path / "no" / "s", tmp_path, target / "s", Path(), Path("/"), Path("a\0b"))
    for place in places:
        with pytest.raises(ModelFormatError, match=r"cannot be written: .*; no partial file remains"):
            write_atomically(place, iter([b"abc"]))
    assert list(tmp_path.iterdir()) == [target]
    assert HEAD.size == 48
